// State shared by the operations of a group whose library runs them in streams of a device, like
// NCCL: in addition to c10d_adapter::Context's, the operations that are under way.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/nccl/device_queries.h>

namespace lockstep::nccl {

using c10d_adapter::AdapterOptions;
using c10d_adapter::Call;
using c10d_adapter::WorkHandle;

class InFlight;

/// Safe to use from several threads.
class StreamContext final : public c10d_adapter::Context {
 public:
  StreamContext(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
                AdapterOptions options, std::shared_ptr<DeviceQueries> device);
  ~StreamContext() override;

  /// The operations in the device's streams.
  InFlight& in_flight() { return *in_flight_; }
  DeviceQueries& device() { return *device_; }

  /// Ends the group and throws if `call`, which has been the first in its stream since `since`, has
  /// passed the group's timeout, or if a peer that it needs has died or left.
  void check_in_flight(const Call& call, Clock::time_point since);
  /// If the group has ended, fails all operations in flight and aborts the library's group. May be
  /// called on any thread; later calls have no effect.
  void carry_out_end();

 private:
  void interrupt() override { carry_out_end(); }
  std::string addition(const std::string& text) const override;

  void judge_in_flight();

  const std::shared_ptr<DeviceQueries> device_;
  std::atomic<bool> broken_ = false;  // the library's group was aborted
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace lockstep::nccl
