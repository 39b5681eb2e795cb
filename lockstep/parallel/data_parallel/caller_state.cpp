#include <lockstep/parallel/data_parallel/caller_state.h>

#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::data_parallel {

CallerState::CallerState(const std::vector<torch::Device>& devices)
    : type_(devices.front().type()),
      cast_type_(at::autocast::get_autocast_dtype(type_)),
      caches_casts_(at::autocast::is_autocast_cache_enabled()) {
  if (devices.front().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(devices.front().type());
  for (const torch::Device device : devices) streams_.push_back(guard.getStream(device));
}

CallerState::Scope::Scope(const CallerState& state, std::size_t replica)
    : state_(state.state_),
      cast_type_(state.type_, state.cast_type_),
      former_cache_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(state.caches_casts_);
  if (!state.streams_.empty()) stream_.reset_stream(state.streams_[replica]);
}

CallerState::Scope::~Scope() { at::autocast::set_autocast_cache_enabled(former_cache_); }

}  // namespace lockstep::data_parallel
