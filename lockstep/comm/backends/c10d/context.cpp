#include <lockstep/comm/backends/c10d/context.h>

#include <utility>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {

Context::Context(std::string name, c10::intrusive_ptr<c10d::Backend> backend,
                 c10::intrusive_ptr<c10d::Store> store, AdapterOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      name_(std::move(name)),
      backend_(std::move(backend)) {}

comm::WatchdogOptions Context::watchdog_options() const {
  comm::WatchdogOptions watching;
  watching.world_ranks = options_.world_ranks;
  watching.store_rank = options_.store_rank;
  watching.own_address = options_.own_address;
  watching.host_timeout = options_.host_timeout;
  watching.farewell = options_.forget_keys;
  return watching;
}

void Context::watch(comm::WatchdogOptions options) {
  const std::scoped_lock lock(mutex_);
  watchdog_ = std::make_unique<comm::Watchdog>(store_, rank(), size(), std::move(options));
}

void Context::wait_for_watchdog() { const std::scoped_lock lock(mutex_); }

std::exception_ptr Context::end() const {
  try {
    watchdog_->throw_if_ended();
    return nullptr;
  } catch (const CommError&) {
    return std::current_exception();
  }
}

WorkHandle Context::start(const Call& call, const std::function<WorkHandle()>& function) {
  watchdog_->throw_if_ended();
  std::string text;
  try {
    auto work = function();
    hold(work);
    return work;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    text = error.what();
  }
  fail(call, text);
}

void Context::fail(const Call& call, const std::string& text) {
  const std::string words = essence(text);
  for (const Deadline deadline(kInquiry);;) {
    explain(call, words, deadline);
    watchdog_->wait_for_news(kInquiryPause);
  }
}

void Context::explain(const Call& call, const std::string& text, const Deadline& deadline) {
  watchdog_->throw_if_ended();
  const bool is_message = !call.number && call.description.root >= 0;
  const std::string reason =
      watchdog_->explanation(is_message ? std::optional<int>(call.description.root) : std::nullopt);
  // A rank that ends the group at its deadline closes its connections. Its reason arrives a moment
  // later, and a silent rank may only be stopped.
  const bool may_be_told = deadline.remaining() > kInquiry - kNews;
  if (!reason.empty() && !may_be_told) {
    end_group(
        lockstep::str(reason, " while ", own_name(), " was in ", call.text(), addition(text)));
  }
  if (deadline.expired()) {
    const std::string trouble = watchdog_->store_trouble();
    end_group(lockstep::str(own_name(), ": ", call.text(), " over ", name_, " failed: ", text,
                            trouble.empty() ? "" : "; " + trouble));
  }
}

void Context::check_departed(const Call& call) {
  watchdog_->throw_if_ended();
  // A message does not depend on ranks other than its peer.
  if (!call.number) return;
  const std::string reason = watchdog_->departed(*call.number);
  if (!reason.empty()) {
    end_group(lockstep::str(reason, " while ", own_name(), " was in ", call.text()));
  }
}

void Context::time_out(const Call& call, std::chrono::milliseconds timeout) {
  watchdog_->throw_if_ended();
  std::string missing = watchdog_->missing(call.number);
  const bool is_message = call.part_of_schedule || !call.number;
  if (missing.empty() && is_message && call.description.root >= 0) {
    missing = lockstep::str("rank ", watchdog_->world_rank(call.description.root));
  }
  std::string awaited;
  if (!missing.empty()) {
    awaited = " for " + missing;
  } else if (call.number) {
    awaited = ", which all ranks have called";
  }
  end_group(
      lockstep::str(own_name(), " waited ", static_cast<double>(timeout.count()) / 1e3, " s in ",
                    call.text(), " over ", name_, awaited, "; ", watchdog_->whereabouts()),
      /*late=*/true);
}

void Context::abort(const std::string& reason, bool late) {
  watchdog_->abort(reason, late);
  interrupt();
}

void Context::end_group(const std::string& reason, bool late) {
  abort(reason, late);
  watchdog_->throw_if_ended();
  throw CommError(reason);  // not reached: the group has ended
}

}  // namespace lockstep::c10d_adapter
