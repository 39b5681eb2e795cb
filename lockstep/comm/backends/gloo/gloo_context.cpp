#include <lockstep/comm/backends/gloo/gloo_context.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::gloo {
namespace {

// The tag of receives that probe a connection. No rank sends a message with this tag.
constexpr int kProbeTag = std::numeric_limits<int>::max();
constexpr std::chrono::hours kNotWaitedFor{24};
// How long the destructor waits for Gloo's threads once their connections are closed.
constexpr std::chrono::milliseconds kEndLimit{500};

}  // namespace

GlooContext::GlooContext(c10::intrusive_ptr<c10d::Backend> backend,
                         c10::intrusive_ptr<c10d::Store> store, AdapterOptions options,
                         std::shared_ptr<comm::Progress> progress)
    : Context("gloo", std::move(backend), std::move(store), std::move(options)),
      progress_(progress ? std::move(progress) : std::make_shared<comm::Progress>()),
      probes_(static_cast<std::size_t>(size())) {
  progress_->will_ring();
  comm::WatchdogOptions watching = watchdog_options();
  watching.ended = [this] { break_connections(); };
  watching.disconnected = [this](int rank) { return disconnected(rank); };
  watching.looked = [this] { nudge(); };
  watch(std::move(watching));
}

// Gloo's destructor waits for all operations, even for one that a peer never joins. If closing the
// connections does not end such an operation, the group is leaked, because no destructor of ours
// may wait for a peer.
GlooContext::~GlooContext() {
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

void GlooContext::hold(const WorkHandle& work) {
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

void GlooContext::release(const WorkHandle& work) {
  const std::scoped_lock lock(mutex_);
  std::erase(outstanding_, work);
}

bool GlooContext::all_ended() {
  const std::scoped_lock lock(mutex_);
  forget_ended();
  return outstanding_.empty();
}

// Forgets completed collectives. Messages are released explicitly, because Gloo reports a message
// as complete once a wait for it was interrupted.
void GlooContext::forget_ended() {
  std::erase_if(outstanding_, [](const WorkHandle& work) {
    return work->isCompleted() && !c10d::isP2POp(work->retrieveOpType());
  });
}

// Probes the connection by a receive, which fails once the peer has closed the connection. The wait
// for the receive is interrupted at once and leaves it posted, so one receive per peer is enough.
bool GlooContext::disconnected(int rank) {
  if (!is_closed(rank)) return false;
  const std::scoped_lock lock(mutex_);
  return deadlines_.empty() || Clock::now() < *deadlines_.begin();
}

bool GlooContext::is_closed(int rank) {
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

GlooContext::MayClose::MayClose(GlooContext& context, Clock::time_point deadline)
    : context_(context) {
  const std::scoped_lock lock(context_.mutex_);
  place_ = context_.deadlines_.insert(deadline);
}

GlooContext::MayClose::~MayClose() {
  const std::scoped_lock lock(context_.mutex_);
  context_.deadlines_.erase(place_);
}

// Interrupts all waits in the library for messages. Their threads check for the group's end and
// then wait again.
void GlooContext::nudge() {
  const std::scoped_lock lock(mutex_);
  for (const auto& work : outstanding_) {
    if (c10d::isP2POp(work->retrieveOpType())) work->abort();
  }
}

// Gloo has no abort, but a receive that times out closes all connections of its group. All waits on
// them then fail, on this rank and on its peers.
void GlooContext::break_connections() {
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

}  // namespace lockstep::gloo
