#include <lockstep/parallel/base/stream_clock.h>

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::detail {

StreamClock::StreamClock(torch::Device device)
    : device_(device.has_index() ? device
                                 : c10::impl::VirtualGuardImpl(device.type()).getDevice()) {}

// An event belongs to the device on whose stream it was first recorded, here always the same.
StreamClock::Moment StreamClock::record() {
  Moment moment = [this] {
    // BACKEND_DEFAULT selects events that measure time.
    if (spare_.empty()) return Moment(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    Moment spare = std::move(spare_.back());
    spare_.pop_back();
    return spare;
  }();
  moment.record(comm::current_stream(device_));
  return moment;
}

double StreamClock::seconds_between(const Moment& earlier, const Moment& later) {
  return earlier.elapsedTime(later) / 1000;  // elapsedTime() is in milliseconds
}

}  // namespace lockstep::detail
