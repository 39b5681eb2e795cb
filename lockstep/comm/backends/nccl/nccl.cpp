#include <lockstep/comm/backends/nccl/nccl.h>

#ifndef USE_C10D_NCCL  // without it LibTorch's header declares nothing
#define USE_C10D_NCCL
#endif
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {

bool is_available() { return true; }

std::string device_identity(torch::Device device) {
  const auto& uuid = at::cuda::getDeviceProperties(device.index())->uuid;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : uuid.bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment, torch::Device device,
                                 std::chrono::milliseconds timeout,
                                 const std::vector<int>& world_ranks) {
  if (!device.is_cuda()) {
    throw ConfigError(
        lockstep::str("backend nccl communicates CUDA tensors, the device is ", device));
  }
  try {
    // NCCL's collectives run on the current device of the calling thread.
    c10::cuda::set_device(device.index());
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(prefixed, environment.rank,
                                                             environment.world_size, options);
    // Else single messages run in communicators of two ranks, where a peer's batch never meets them.
    group->eagerConnectSingleDevice(device);
    return c10d_adapter::make(std::move(group),
                              c10::make_intrusive<c10d::PrefixStore>("watchdog", store),
                              {.library = c10d_adapter::Library::kNccl,
                               .timeout = timeout,
                               .device = device,
                               .world_ranks = world_ranks,
                               .store_rank = c10d_adapter::store_rank(environment, world_ranks),
                               .forget_keys = {}});
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", c10d_adapter::world_rank(environment, world_ranks),
                                  ": cannot connect the ranks over NCCL on ", device, ": ",
                                  first_line(error)));
  }
}

}  // namespace lockstep::nccl
