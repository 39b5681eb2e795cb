#include <lockstep/comm/group/device_copies.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>

#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/call/device_stream.h>
#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// One stream per device is enough: its copies complete in the order of the calls anyway.
c10::Stream copy_stream_of(torch::Device device) {
  static std::mutex mutex;
  static std::map<std::pair<torch::DeviceType, torch::DeviceIndex>, c10::Stream> streams;
  const std::scoped_lock lock(mutex);
  const auto found = streams.find({device.type(), device.index()});
  if (found != streams.end()) return found->second;
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  streams.emplace(std::pair(device.type(), device.index()), stream);
  return stream;
}

}  // namespace

void set_current_device(torch::Device device) {
  if (device.is_cpu() || !device.has_index()) return;
  const bool is_known = c10::impl::hasDeviceGuardImpl(device.type());
  const int count = is_known ? c10::impl::VirtualGuardImpl(device.type()).deviceCount() : 0;
  if (device.index() >= count) {
    throw ConfigError(lockstep::str("device ", device, " is not there: this process sees ", count,
                                    " of its type; choose one of them, or the CPU"));
  }
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

c10::Event start_copies_to_host(const TensorPairs& copies) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = copies.front().second.device();
  const c10::Stream own = copy_stream_of(device);
  mark_stream(device).block(own);
  const c10::StreamGuard guard(own);
  for (const auto& [host, source] : copies) {
    // Tensors of one call are nearly always on one device. A copy from another device blocks,
    // because this event does not cover its stream.
    torch::Tensor(host).copy_(source.detach(), /*non_blocking=*/source.device() == device);
  }
  c10::Event arrived(device.type());
  arrived.record(own);
  return arrived;
}

bool is_captured(torch::Device device) { return is_capturing() || nccl::is_captured(device); }

std::optional<torch::Device> device_of_results(const TensorPairs& copies) {
  for (const auto& [target, source] : copies) {
    if (!target.is_cpu() && source.is_cpu() && source.is_pinned()) return target.device();
  }
  return std::nullopt;
}

std::optional<c10::Event> copy_results(const TensorPairs& copies) {
  const torch::NoGradGuard no_grad;
  std::optional<torch::Device> device;
  for (const auto& [target, source] : copies) {
    const bool from_device = !source.is_cpu();
    // The event covers one device; copies to others block.
    const bool queues = !target.is_cpu() && (from_device || source.is_pinned()) &&
                        (!device || device == target.device());
    torch::Tensor(target).copy_(source, /*non_blocking=*/queues);
    if (queues) device = target.device();
    // The source, a temporary, may have been made in another stream.
    if (from_device) record_current_stream(source);
  }
  return device ? std::optional(mark_stream(*device)) : std::nullopt;
}

}  // namespace lockstep::comm
