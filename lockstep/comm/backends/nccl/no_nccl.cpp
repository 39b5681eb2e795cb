#include <lockstep/comm/backends/nccl/nccl.h>

#include <lockstep/core/error.h>

namespace lockstep::nccl {

bool is_available() { return false; }

std::string device_identity(torch::Device) { return ""; }

bool is_captured(torch::Device) { return false; }

std::shared_ptr<comm::Backend> connect(const c10::intrusive_ptr<c10d::Store>&,
                                       const WorkerEnvironment&, torch::Device,
                                       std::chrono::milliseconds, const std::vector<int>&,
                                       std::chrono::milliseconds, const Communicator&,
                                       const c10d_adapter::Meanwhile&) {
  throw ConfigError(
      "backend nccl is not in this build; configure with the cuda preset against a CUDA build of "
      "LibTorch, or choose gloo or shm");
}

void leave_split(const std::shared_ptr<comm::Backend>&, int, torch::Device,
                 std::chrono::milliseconds, const c10d_adapter::Meanwhile&) {
  throw InternalError("no group is over NCCL here");
}

}  // namespace lockstep::nccl
