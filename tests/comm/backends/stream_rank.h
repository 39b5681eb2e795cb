// A rank whose operations run in a simulated library's stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <lockstep/comm/backends/nccl/stream_work.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/comm/backends/stream_library.h>

namespace lockstep::testing_support {

/// Whether `condition` becomes true within a minute.
inline bool comes_true(const std::function<bool()>& condition) {
  for (const Deadline deadline(std::chrono::seconds(60)); !condition();) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A rank of a group, by default of two ranks. The other rank exists only through its keys in the
/// store. LivePeer simulates one that is alive.
struct StreamRank {
  explicit StreamRank(
      int rank = 0, c10d_adapter::AdapterOptions options = {},
      c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>(), int size = 2,
      std::shared_ptr<nccl::DeviceQueries> device = std::make_shared<nccl::DeviceQueries>())
      : store(std::move(store)),
        library(c10::make_intrusive<StreamLibrary>(rank, size)),
        caller(
            nccl::adapt(library, this->store, with_defaults(std::move(options)), std::move(device)),
            rank, size) {}
  StreamRank(c10d_adapter::AdapterOptions options, std::shared_ptr<nccl::DeviceQueries> device)
      : StreamRank(0, std::move(options), c10::make_intrusive<c10d::HashStore>(), 2,
                   std::move(device)) {}

  static c10d_adapter::AdapterOptions with_defaults(c10d_adapter::AdapterOptions options) {
    if (options.timeout.count() == 0) options.timeout = std::chrono::seconds(600);
    return options;
  }

  std::shared_ptr<Work> start() { return caller.start(CallKind::kAllReduce, {}, torch::ones({4})); }
  std::shared_ptr<Work> recv(int source) {
    return caller.backend->recv(torch::ones({4}), source, 0);
  }
  comm::Watchdog& watchdog() { return *caller.backend->watchdog(); }
  /// The error that the next call throws. Empty until the group has ended.
  std::string end() {
    try {
      caller.backend->check();
      return "";
    } catch (const TimeoutError& error) {
      return str("TimeoutError: ", error.what());
    } catch (const CommError& error) {
      return str("CommError: ", error.what());
    }
  }

  const c10::intrusive_ptr<c10d::Store> store;
  const c10::intrusive_ptr<StreamLibrary> library;
  Caller caller;
};

/// A peer that sends heartbeats and does nothing else.
struct LivePeer {
  explicit LivePeer(const StreamRank& rank)
      : watchdog(rank.store, 1 - rank.caller.rank, 2, {.beat = std::chrono::milliseconds(20)}) {}
  const comm::Watchdog watchdog;
};

/// Writes what `rank` says about itself, as its watchdog would.
inline void write_status_of(c10d::Store& store, int rank, const std::string& text) {
  store.set(str("status/", rank), std::vector<std::uint8_t>(text.begin(), text.end()));
}

}  // namespace lockstep::testing_support
