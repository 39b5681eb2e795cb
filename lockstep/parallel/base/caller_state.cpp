#include <lockstep/parallel/base/caller_state.h>

#include <algorithm>

#include <ATen/autocast_mode.h>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::parallel {

CallerState::CallerState(const std::vector<torch::Device>& devices,
                         const std::vector<torch::Device>& others)
    : devices_(devices), caches_casts_(at::autocast::is_autocast_cache_enabled()) {
  const auto add_stream = [&](torch::Device device) {
    const auto is_its = [&](const c10::Stream& stream) { return stream.device() == device; };
    // Otherwise a guard that sets a device twice would restore the stream that it set itself.
    if (device.is_cpu() || std::any_of(streams_.begin(), streams_.end(), is_its)) return;
    streams_.push_back(comm::current_stream(device));
  };
  for (const torch::Device device : devices) {
    cast_types_.push_back(at::autocast::get_autocast_dtype(device.type()));
    add_stream(device);
  }
  for (const torch::Device device : others) add_stream(device);
}

CallerState::Scope::Scope(const CallerState& state, std::size_t member)
    : state_(state.state_),
      cast_type_(state.devices_[member].type(), state.cast_types_[member]),
      former_cache_(at::autocast::is_autocast_cache_enabled()),
      device_(state.devices_[member]),
      streams_(state.streams_) {
  at::autocast::set_autocast_cache_enabled(state.caches_casts_);
}

CallerState::Scope::~Scope() { at::autocast::set_autocast_cache_enabled(former_cache_); }

}  // namespace lockstep::parallel
