#include <lockstep/comm/backends/nccl/stream_context.h>

#include <utility>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/comm/backends/nccl/closing_threads.h>
#include <lockstep/comm/backends/nccl/in_flight.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

using c10d_adapter::essence;

// How long the destructor waits for a thread that closes the library's group.
constexpr std::chrono::milliseconds kCloseLimit{500};

// The error of an operation that was under way when the library's group could not be shut down.
std::exception_ptr left_over(const std::string& name, const Call& call,
                             const std::string& failure) {
  return std::make_exception_ptr(
      CommError(lockstep::str(name, ": ", call.text(),
                              " over nccl was under way when this rank left the group, which "
                              "failed: ",
                              failure)));
}

}  // namespace

StreamContext::StreamContext(c10::intrusive_ptr<c10d::Backend> backend,
                             c10::intrusive_ptr<c10d::Store> store, AdapterOptions options,
                             std::shared_ptr<DeviceQueries> device)
    : Context("nccl", std::move(backend), std::move(store), std::move(options)),
      device_(std::move(device)),
      in_flight_(std::make_unique<InFlight>(*this)) {
  comm::WatchdogOptions watching = watchdog_options();
  watching.silence_limit = this->options().host_timeout;
  watching.ended = [this] { wait_for_watchdog(), carry_out_end(); };
  watching.looked = [this] { wait_for_watchdog(), judge_in_flight(); };
  watch(std::move(watching));
}

// NCCL's destructor would abort operations for which a stream still waits, and messages that a peer
// has not yet read. Its shutdown completes only once the peers leave as well. After a failure, the
// destructor waits for LibTorch's watchdog, which sleeps for a minute.
StreamContext::~StreamContext() {
  if (end()) carry_out_end();
  auto rest = in_flight_->stop();
  watchdog_->leave();  // ends the watchdog's thread, which uses this object
  const auto reason = end();
  if (reason) carry_out_end();  // the group may have ended while this rank left
  auto leave = [name = own_name(), backend = std::move(backend_), rest = std::move(rest),
                reason]() mutable {
    std::string failure;
    try {
      if (!reason) backend->shutdown();
    } catch (const std::exception& error) {
      failure = essence(error.what());  // a peer failed in the meantime
    }
    for (const auto& operation : rest) {
      operation->end(failure.empty() ? reason : left_over(name, operation->call(), failure));
    }
    rest.clear();
    backend.reset();
  };
  ClosingThreads::instance().run(std::move(leave), kCloseLimit);
  watchdog_.reset();  // before the members of this class
}

std::string StreamContext::addition(const std::string& text) const {
  return lockstep::str("; ", name(), ": ", text);
}

// NCCL has no connection whose state could be queried, and its kernels wait for a peer forever.
void StreamContext::check_in_flight(const Call& call, Clock::time_point since) {
  check_departed(call);
  const auto waited = Clock::now() - since;
  const auto patience = options().host_timeout;
  if (patience.count() > 0 && waited >= patience) {
    // A message needs only its peer. A peer that left may have sent it before, but then it would
    // have arrived by now.
    const bool is_message = !call.number;
    const int peer = call.description.root;
    std::string reason = is_message ? watchdog_->left(peer) : "";
    if (reason.empty() && (!is_message || peer == options().store_rank)) {
      reason = watchdog_->lost_store(patience);
    }
    if (!reason.empty()) {
      end_group(lockstep::str(reason, " while ", own_name(), " was in ", call.text()));
    }
  }
  if (waited >= options().timeout) time_out(call, options().timeout);
}

void StreamContext::judge_in_flight() {
  try {
    in_flight_->judge();
  } catch (const CommError&) {
    carry_out_end();
  }
}

void StreamContext::carry_out_end() {
  try {
    return watchdog_->throw_if_ended();
  } catch (const CommError&) {
    if (broken_.exchange(true)) return;
    // Must precede the abort, after which the operations look complete.
    in_flight_->fail(std::current_exception());
  }
  const auto abort = [backend = backend_] {
    try {
      backend->abort();
    } catch (const std::exception&) {
      // The library's group has already failed, which ends its operations.
    }
  };
  ClosingThreads::instance().run(abort, std::chrono::milliseconds(0));
}

}  // namespace lockstep::nccl
