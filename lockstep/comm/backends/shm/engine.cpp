#include <lockstep/comm/backends/shm/engine.h>

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::shm {

std::size_t Engine::control_bytes(int size, const EngineOptions& options) {
  return Control::bytes(size, options.slot_bytes);
}

Engine::Engine(std::shared_ptr<Segment> control, int rank, int size, EngineOptions options)
    : state_(std::move(control), rank, size, std::move(options)), waiter_(state_, *this) {
  LOCKSTEP_CHECK(size <= kMaxRanks, "a group on one host has at most ", kMaxRanks, " ranks, got ",
                 size);
  LOCKSTEP_CHECK(state_.memory->bytes() >= control_bytes(size, state_.options));
  state_.control.state(rank).pid.store(getpid(), std::memory_order_relaxed);
  const std::size_t outgoing = static_cast<std::size_t>(size) * state_.control.ring_bytes();
  if (size > 1) madvise(state_.control.ring(rank, 0), outgoing, MADV_POPULATE_WRITE);
}

Engine::~Engine() { state_.end.leave(); }

// Errors are ignored: kernels before 5.14 do not support MADV_POPULATE_READ and map the pages on
// first access.
void Engine::map_incoming() const {
  const Control& control = state_.control;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    madvise(control.ring(peer, rank()), control.ring_bytes(), MADV_POPULATE_READ);
  }
}

// --- Operations ----------------------------------------------------------------------------------

Engine::Ticket Engine::post(const CallDescription& call, std::uint64_t number,
                            const std::byte* input, std::byte* output,
                            std::shared_ptr<const void> keep_alive) {
  const CollectiveRequest request{call, number, input, output};
  auto place = place_to_use(request);
  const std::scoped_lock lock(state_.mutex);
  state_.end.throw_if_aborted();
  state_.chunks.post(request, std::move(place), std::move(keep_alive));
  state_.advance_and_wake();
  return state_.chunks.posted();
}

void Engine::run(const CallDescription& call, std::uint64_t number, const std::byte* input,
                 std::byte* output, std::chrono::milliseconds timeout,
                 const std::function<void()>& meanwhile) {
  try {
    run_unguarded({call, number, input, output}, timeout, meanwhile);
  } catch (...) {
    // The caller may free its memory now, so this engine must not access it any more.
    {
      const std::scoped_lock lock(state_.mutex);
      state_.end.stop();
    }
    // A no-op if the group has already been aborted.
    abort(str(state_.end.name(rank()), " failed in ", describe(call)));
    throw;
  }
}

void Engine::run_unguarded(const CollectiveRequest& request, std::chrono::milliseconds timeout,
                           const std::function<void()>& meanwhile) {
  constexpr int kLooks = 64;
  auto place = place_to_use(request);
  Ticket ticket = 0;
  {
    const std::scoped_lock lock(state_.mutex);
    ChunkPipeline& chunks = state_.chunks;
    state_.end.throw_if_aborted();
    // Poll briefly before waking sleeping peers, because checking for sleepers takes as long as
    // polling a peer. Do not poll if a peer may need this processor or messages may arrive.
    const bool polls = state_.options.patience.spin.count() != 0 && state_.channels.idle();
    const int looks = polls ? kLooks : 0;
    if (looks > 0 && !place && chunks.can_run_tiny(request)) {
      if (chunks.run_tiny(request, looks, meanwhile)) return chunks.wake_sleepers();
    } else {
      chunks.post(request, std::move(place), nullptr);
      state_.advance();
      meanwhile();
    }
    ticket = chunks.posted();
    for (int look = 0; look < looks && chunks.released() != ticket; ++look) {
      cpu_relax();
      state_.advance();
    }
    chunks.wake_sleepers();
    if (chunks.released() == ticket) return;
  }
  wait(ticket, timeout);
}

std::shared_ptr<Transfer> Engine::post(const CallDescription& call, int tag, std::byte* data,
                                       std::shared_ptr<const void> keep_alive,
                                       std::uint32_t fingerprint) {
  auto transfer = std::make_shared<Transfer>();
  transfer->call = call;
  transfer->tag = tag;
  transfer->fingerprint = fingerprint;
  transfer->data = data;
  transfer->bytes = call.count * detail::element_size(call.type);
  transfer->keep_alive = std::move(keep_alive);
  const std::scoped_lock lock(state_.mutex);
  state_.end.throw_if_aborted();
  state_.control.state(rank()).last_transfer.write(call);
  state_.channels.post(transfer);
  state_.advance_and_wake();
  return transfer;
}

bool Engine::advance() noexcept {
  try {
    const std::scoped_lock lock(state_.mutex);
    return state_.advance_and_wake();
  } catch (const std::exception&) {
    return false;  // a later wait in this group throws the reason
  }
}

void Engine::check() {
  throw_if_ended();
  // A rank that left has completed its part, and peers may still have to read it. The group is
  // therefore not aborted.
  for (int peer = 0; peer < size(); ++peer) {
    const std::string gone = peer == rank() ? "" : state_.end.why_gone(peer);
    if (!gone.empty()) throw CommError(gone);
  }
}

}  // namespace lockstep::shm
