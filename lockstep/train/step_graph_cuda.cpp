// at::cuda::CUDAGraph, as PyTorch's notes on CUDA graphs say it is to be used.
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

namespace lockstep {
namespace {

class CudaStepGraph final : public StepGraph {
 public:
  explicit CudaStepGraph(torch::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  void warm_up(const std::function<void()>& work) override { on_stream(work); }

  // The memory of the graph comes from a pool of its own, and the generator of the device registers
  // with it, so that each replay draws from the seed of that time. Only this thread's calls are
  // restricted: the loader's threads go on meanwhile.
  void capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    on_stream([&] {
      graph_.capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
      try {
        work();
      } catch (...) {
        abandon();
        throw;
      }
      graph_.capture_end();
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

  // What could not be recorded is the error to tell, not that the recording cannot end well.
  void abandon() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception& error) {
      log_debug("the capture of a CUDA graph has ended: ", first_line(error));
    }
  }

  const torch::Device device_;
  const c10::cuda::CUDAStream stream_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(torch::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep
