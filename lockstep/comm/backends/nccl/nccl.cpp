#include <lockstep/comm/backends/nccl/nccl.h>

#include <utility>

#ifndef USE_C10D_NCCL  // LibTorch's header declares nothing without this macro
#define USE_C10D_NCCL
#endif
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/comm/backends/nccl/connecting.h>
#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

// The deadline of LibTorch's own watchdog is this much later than Lockstep's, so that it acts only
// if Lockstep's watchdog did not end the operation.
constexpr std::chrono::minutes kLibraryDelay{2};

class CudaQueries final : public DeviceQueries {
 public:
  explicit CudaQueries(torch::Device device) : device_(device) {}

  bool is_capturing() override { return is_captured(device_); }

  bool has_ended(c10d::Work& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    // Without this guard, a query on this thread would invalidate another thread's stream capture.
    const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeThreadLocal);
    return work.isCompleted();
  }

 private:
  const torch::Device device_;
};

// LibTorch's watchdog would end the process a minute after a failure. Lockstep's watchdog has
// reported the failure to the callers and the launcher by then. LibTorch's watchdog is therefore
// set to abort the communicator only, unless the user has chosen otherwise. LibTorch requires that
// nothing handles errors where TORCH_NCCL_BLOCKING_WAIT is set.
class Group final : public c10d::ProcessGroupNCCL {
 public:
  Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
        c10::intrusive_ptr<Options> options)
      : ProcessGroupNCCL(std::move(store), rank, size, std::move(options)) {
    if (blockingWait_) return;
    for (const auto& name : c10d::TORCH_NCCL_ASYNC_ERROR_HANDLING) {
      if (environment_string(name.c_str())) return;
    }
    asyncErrorHandling_ = c10d::CleanUpOnly;
  }

  // Connects the ranks, which find each other through `store`. Later, and in its own threads,
  // LibTorch uses the store of the constructor.
  void connect(torch::Device device, c10::intrusive_ptr<c10d::Store> store) {
    auto lasting = std::exchange(store_, std::move(store));
    // Without this call, single messages would use communicators of two ranks, which never match a
    // peer's batch.
    eagerConnectSingleDevice(device);
    store_ = std::move(lasting);
  }
};

c10d::ProcessGroupNCCL& group_of(comm::Backend& backend) {
  auto* const group = dynamic_cast<c10d::ProcessGroupNCCL*>(backend.library());
  LOCKSTEP_CHECK(group != nullptr, backend.name(), " is not over NCCL");
  return *group;
}

}  // namespace

bool is_available() { return true; }

std::string device_identity(torch::Device device) {
  return hex_text(at::cuda::getDeviceProperties(device.index())->uuid.bytes);
}

bool is_captured(torch::Device device) {
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAGuard guard(device);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

std::shared_ptr<comm::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                       const WorkerEnvironment& environment, torch::Device device,
                                       std::chrono::milliseconds timeout,
                                       const std::vector<int>& world_ranks,
                                       std::chrono::milliseconds host_timeout,
                                       const Communicator& communicator,
                                       const c10d_adapter::Meanwhile& meanwhile) {
  if (!device.is_cuda()) {
    throw ConfigError(
        lockstep::str("backend nccl communicates CUDA tensors, the device is ", device));
  }
  const auto where = [&] {
    return lockstep::str("rank ", c10d_adapter::world_rank(environment, world_ranks),
                         ": cannot connect the ranks over NCCL on ", device, ": ");
  };
  try {
    // NCCL's collectives run on the current device of the calling thread.
    c10::cuda::set_device(device.index());
    auto options = c10d::ProcessGroupNCCL::Options::create(communicator.high_priority);
    options->timeout = timeout + kLibraryDelay;
    // LibTorch assumes ranks from 0 for a process's first group only.
    for (int rank = 0; rank < environment.world_size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      options->global_ranks_in_group.push_back(
          static_cast<std::uint64_t>(world_ranks.empty() ? rank : world_ranks[index]));
    }
    if (communicator.parent) {
      options->split_from =
          c10::intrusive_ptr<c10d::ProcessGroupNCCL>::reclaim_copy(&group_of(*communicator.parent));
      options->split_color = communicator.color;
    }
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
    auto group =
        c10::make_intrusive<Group>(prefixed, environment.rank, environment.world_size, options);
    connect_library(
        prefixed,
        [group, device](c10::intrusive_ptr<c10d::Store> view) {
          c10::cuda::set_device(device.index());  // each thread has its own current device
          group->connect(device, std::move(view));
        },
        meanwhile, timeout);
    options->split_from.reset();  // so that the group does not keep its parent alive
    return adapt(std::move(group), c10::make_intrusive<c10d::PrefixStore>("watchdog", store),
                 {.timeout = timeout,
                  .device = device,
                  .world_ranks = world_ranks,
                  .store_rank = c10d_adapter::store_rank(environment, world_ranks),
                  .host_timeout = host_timeout},
                 std::make_shared<CudaQueries>(device));
  } catch (const TimeoutError& error) {
    throw TimeoutError(where() + error.what());
  } catch (const std::exception& error) {
    throw CommError(where() + c10d_adapter::essence(std::string(error.what())));
  }
}

void leave_split(const std::shared_ptr<comm::Backend>& parent, int world_rank, torch::Device device,
                 std::chrono::milliseconds timeout, const c10d_adapter::Meanwhile& meanwhile) {
  const auto where = [&] {
    return lockstep::str("rank ", world_rank, ": cannot split the group over NCCL on ", device,
                         ": ");
  };
  try {
    await_library(
        [parent, device] {
          c10::cuda::set_device(device.index());
          group_of(*parent).performNocolorSplit(device);
        },
        meanwhile, timeout);
  } catch (const TimeoutError& error) {
    throw TimeoutError(where() + error.what());
  } catch (const std::exception& error) {
    throw CommError(where() + c10d_adapter::essence(std::string(error.what())));
  }
}

}  // namespace lockstep::nccl
