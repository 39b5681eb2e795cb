#include <lockstep/comm/backends/c10d/context.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include <lockstep/comm/backends/c10d/closing_threads.h>
#include <lockstep/comm/backends/c10d/in_flight.h>
#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {
namespace {

// The tag of receives that probe a connection. No rank sends a message with this tag.
constexpr int kProbeTag = std::numeric_limits<int>::max();
constexpr std::chrono::hours kNotWaitedFor{24};
// How long a destructor waits for the library's threads once their connections are closed.
constexpr std::chrono::milliseconds kEndLimit{500};

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

Context::Context(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
                 AdapterOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      name_(options_.library == Library::kGloo ? "gloo" : "nccl"),
      progress_(options_.progress ? options_.progress : std::make_shared<Progress>()),
      probes_(static_cast<std::size_t>(backend->getSize())),
      backend_(std::move(backend)) {
  WatchdogOptions watching;
  watching.world_ranks = options_.world_ranks;
  watching.store_rank = options_.store_rank;
  watching.own_address = options_.own_address;
  watching.host_timeout = options_.host_timeout;
  watching.farewell = options_.forget_keys;
  if (is_gloo()) {
    progress_->will_ring();
    watching.ended = [this] { break_connections(); };
    watching.disconnected = [this](int rank) { return disconnected(rank); };
    watching.looked = [this] { nudge(); };
  } else {
    in_flight_ = std::make_unique<InFlight>(*this);
    watching.silence_limit = options_.host_timeout;
    watching.ended = [this] { wait_for_watchdog(), carry_out_end(); };
    watching.looked = [this] { wait_for_watchdog(), judge_in_flight(); };
  }
  const std::scoped_lock lock(mutex_);
  watchdog_ = std::make_unique<Watchdog>(store_, rank(), size(), std::move(watching));
}

// The watchdog's thread may run before the constructor has stored `watchdog_`.
void Context::wait_for_watchdog() { const std::scoped_lock lock(mutex_); }

Context::~Context() { is_gloo() ? leave_gloo() : leave_streams(); }

// Gloo's destructor waits for all operations, even for one that a peer never joins. If closing the
// connections does not end such an operation, the group is leaked, because no destructor of ours
// may wait for a peer.
void Context::leave_gloo() {
  const bool failed = end() != nullptr;
  watchdog_.reset();
  probes_.clear();
  if (failed && !broken_) break_connections();  // the watchdog did not get to it
  if (!all_ended()) {
    break_connections();
    const Deadline limit(kEndLimit);
    while (!all_ended() && !limit.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waiters_.join();
  if (!all_ended()) backend_.release();
}

// NCCL's destructor would abort operations for which a stream still waits, and messages that a peer
// has not yet read. Its shutdown completes only once the peers leave as well. After a failure, the
// destructor waits for LibTorch's watchdog, which sleeps for a minute.
void Context::leave_streams() {
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
  ClosingThreads::instance().run(std::move(leave), kEndLimit);
}

// The error with which the group has ended; null if it has not.
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

void Context::hold(const WorkHandle& work) {
  if (!is_gloo()) return;  // NCCL's abort reaches all operations
  {
    const std::scoped_lock lock(mutex_);
    forget_ended();
    outstanding_.push_back(work);
  }
  try {
    watchdog_->throw_if_ended();
  } catch (const CommError&) {
    // The group ended before this operation was registered, so it was not interrupted.
    if (c10d::isP2POp(work->retrieveOpType())) {
      work->abort();
      release(work);  // nobody will wait for it
    }
    throw;
  }
}

void Context::release(const WorkHandle& work) {
  const std::scoped_lock lock(mutex_);
  std::erase(outstanding_, work);
}

bool Context::all_ended() {
  const std::scoped_lock lock(mutex_);
  forget_ended();
  return outstanding_.empty();
}

// Forgets completed collectives. Messages are released explicitly, because Gloo reports a message
// as complete once a wait for it was interrupted.
void Context::forget_ended() {
  std::erase_if(outstanding_, [](const WorkHandle& work) {
    return work->isCompleted() && !c10d::isP2POp(work->retrieveOpType());
  });
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
    // Gloo's text says only that a connection is closed, which adds nothing to the reason.
    end_group(lockstep::str(reason, " while ", own_name(), " was in ", call.text(),
                            is_gloo() ? "" : lockstep::str("; ", name_, ": ", text)));
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

// NCCL has no connection whose state could be queried, and its kernels wait for a peer forever.
void Context::check_in_flight(const Call& call, Clock::time_point since) {
  check_departed(call);
  const auto waited = Clock::now() - since;
  const auto patience = options_.host_timeout;
  if (patience.count() > 0 && waited >= patience) {
    // A message needs only its peer. A peer that left may have sent it before, but then it would
    // have arrived by now.
    const bool is_message = !call.number;
    const int peer = call.description.root;
    std::string reason = is_message ? watchdog_->left(peer) : "";
    if (reason.empty() && (!is_message || peer == options_.store_rank)) {
      reason = watchdog_->lost_store(patience);
    }
    if (!reason.empty()) {
      end_group(lockstep::str(reason, " while ", own_name(), " was in ", call.text()));
    }
  }
  if (waited >= options_.timeout) time_out(call, options_.timeout);
}

void Context::judge_in_flight() {
  try {
    in_flight_->judge();
  } catch (const CommError&) {
    carry_out_end();
  }
}

void Context::time_out(const Call& call, std::chrono::milliseconds timeout) {
  watchdog_->throw_if_ended();
  std::string missing = watchdog_->missing(call.number);
  const bool is_message = call.part_of_schedule || !call.number;
  if (missing.empty() && is_message && call.description.root >= 0) {
    missing = lockstep::str("rank ", watchdog_->world_rank(call.description.root));
  }
  end_group(lockstep::str(own_name(), " waited ", static_cast<double>(timeout.count()) / 1e3,
                          " s in ", call.text(), " over ", name_,
                          missing.empty() ? ", which all ranks have called" : " for " + missing,
                          "; ", watchdog_->whereabouts()),
            /*late=*/true);
}

// nudge() wakes the threads that wait in the library for messages.
void Context::abort(const std::string& reason, bool late) {
  watchdog_->abort(reason, late);
  nudge();
  carry_out_end();
}

void Context::carry_out_end() {
  if (is_gloo()) return;
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

void Context::end_group(const std::string& reason, bool late) {
  abort(reason, late);
  watchdog_->throw_if_ended();
  throw CommError(reason);  // not reached: the group has ended
}

// Probes the connection by a receive, which fails once the peer has closed the connection. The wait
// for the receive is interrupted at once and leaves it posted, so one receive per peer is enough.
bool Context::disconnected(int rank) {
  if (!is_closed(rank)) return false;
  const std::scoped_lock lock(mutex_);
  return deadlines_.empty() || Clock::now() < *deadlines_.begin();
}

bool Context::is_closed(int rank) {
  WorkHandle& probe = probes_[static_cast<std::size_t>(rank)];
  try {
    if (!probe) {
      std::vector<at::Tensor> byte{torch::empty({1}, torch::kUInt8)};
      probe = backend_->recv(byte, rank, kProbeTag);
    }
    probe->abort();
    probe->wait(kNotWaitedFor);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

Context::MayClose::MayClose(Context& context, Clock::time_point deadline) : context_(context) {
  const std::scoped_lock lock(context_.mutex_);
  place_ = context_.deadlines_.insert(deadline);
}

Context::MayClose::~MayClose() {
  const std::scoped_lock lock(context_.mutex_);
  context_.deadlines_.erase(place_);
}

// Interrupts all waits in the library for messages. Their threads check for the group's end and
// then wait again.
void Context::nudge() {
  const std::scoped_lock lock(mutex_);
  for (const auto& work : outstanding_) {
    if (c10d::isP2POp(work->retrieveOpType())) work->abort();
  }
}

// Gloo has no abort, but a receive that times out closes all connections of its group. All waits on
// them then fail, on this rank and on its peers.
void Context::break_connections() {
  broken_ = true;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      std::vector<at::Tensor> probe{torch::empty({1}, torch::kUInt8)};
      backend_->recv(probe, peer, kProbeTag)->wait(std::chrono::milliseconds(1));
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("Timed out") != std::string::npos) break;
    }
  }
  // A receive from any source belongs to no connection, and a pending send does not notice the
  // closing.
  nudge();
}

}  // namespace lockstep::c10d_adapter
