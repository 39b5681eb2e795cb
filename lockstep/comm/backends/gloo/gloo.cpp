// LibTorch's ProcessGroupGloo.hpp includes headers of Gloo that LibTorch does not ship; Debian's
// older ones have the declarations it needs. No class of theirs is made here: the library inside
// LibTorch is newer than those headers.
#include <lockstep/comm/backends/gloo/gloo.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {

std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment,
                                 const std::string& interface_address, torch::Device device,
                                 std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  try {
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(interface_address));
    options->threads = 2;
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, environment.rank,
                                                             environment.world_size, options);
    return c10d_adapter::make(std::move(group), store,
                              {.name = "gloo", .averages = false, .timeout = timeout, .device = device});
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, ": cannot connect the ranks over Gloo on ",
                        interface_address, ": ", first_line(error)));
  }
}

}  // namespace lockstep::gloo
