// Uses at::cuda::CUDAGraph as described in PyTorch's notes on CUDA graphs.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/train/step_graph.h>

namespace lockstep::detail {
namespace {

class CudaStepGraph final : public StepGraph {
 public:
  explicit CudaStepGraph(torch::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  void warm_up(const std::function<void()>& work) override { on_stream(work); }

  // The graph has a memory pool of its own. The device's generator registers with the graph, so
  // that each replay uses the seed current at that time. Only this thread's calls are restricted:
  // the loader's threads continue meanwhile.
  void capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    on_stream([&] {
      pool_ = at::cuda::graph_pool_handle();
      recovering([&] { graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal); });
      try {
        work();
      } catch (...) {
        abandon();
        throw;
      }
      end_capture();
    });
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  void on_stream(const std::function<void()>& work) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStream outer = c10::cuda::getCurrentCUDAStream(device_.index());
    wait_for(outer, stream_);
    {
      const c10::cuda::CUDAStreamGuard stream_guard(stream_);
      work();
    }
    wait_for(stream_, outer);
  }

  static void wait_for(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& then) {
    at::cuda::CUDAEvent event;
    event.record(first);
    event.block(then);
  }

  void end_capture() {
    recovering([&] { graph_.capture_end(); });
  }

  // If the driver refuses to begin or end a capture, LibTorch still considers it under way. Its
  // allocator of device memory then keeps all freed memory that another stream has used, and its
  // generator refuses to draw outside a graph.
  template <class Function>
  void recovering(const Function& function) {
    try {
      function();
    } catch (...) {
      give_up_pool(pool_, graph_);
      release_generator();
      throw;
    }
  }

  void give_up_pool(c10::MempoolId_t pool, at::cuda::CUDAGraph& graph) noexcept {
    namespace device_allocator = c10::cuda::CUDACachingAllocator;
    const c10::DeviceIndex index = stream_.device_index();
    at::HostAllocator* const pinned = at::getHostAllocator(at::kCUDA);
    give_up([&] { device_allocator::endAllocateToPool(index, pool); });
    give_up([&] { pinned->end_allocate_to_pool(pool); });
    if (has_ended(graph)) return;  // the graph releases its pool itself, and a second time is fatal
    give_up([&] { device_allocator::releasePool(index, pool); });
    give_up([&] { pinned->release_pool(pool); });
  }

  // Whether the capture has ended, even if the graph could not be instantiated afterwards.
  static bool has_ended(at::cuda::CUDAGraph& graph) noexcept {
    try {
      graph.pool();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  // Captures a small graph, because the end of any later capture makes the generator usable again.
  // Versions of LibTorch after 2.11 do not need this.
  void release_generator() noexcept {
    give_up([&] {
      const torch::Tensor number = torch::zeros({}, device_);
      const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
      at::cuda::CUDAGraph graph;
      try {
        graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
        number.add_(1);
        graph.capture_end();
      } catch (...) {
        give_up_pool(pool, graph);
        throw;
      }
    });
  }

  // LibTorch may have done this part before it failed. To do it again then throws.
  template <class Function>
  static void give_up(const Function& function) noexcept {
    try {
      function();
    } catch (const std::exception& error) {
      log_debug("recovery from the failed capture of a CUDA graph: ", first_line(error));
    }
  }

  // Ends a failed capture. Its own error is dropped in favour of the one that made recording fail.
  void abandon() noexcept {
    try {
      end_capture();
    } catch (const std::exception& error) {
      log_debug("the capture of a CUDA graph has ended: ", first_line(error));
    }
  }

  const torch::Device device_;
  const c10::cuda::CUDAStream stream_;
  c10::MempoolId_t pool_{};
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(torch::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep::detail
