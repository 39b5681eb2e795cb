// The shared-memory engine: collectives and messages between the processes of one host. It does not
// use LibTorch and has no thread of its own.
//
// A collective is cut into chunks, which move through three stages (control.h, chunk.h):
// arrive, work, release. Every call into the engine advances all chunks (chunk_pipeline.h) and all
// messages (channels.h) as far as possible. wait() does so until the given operation is complete:
// it first spins, then sleeps on the words that are missing (waiter.h). Data in symmetric memory is
// used in place; other data is copied through staging slots of the control segment.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/engine_state.h>
#include <lockstep/comm/backends/shm/symmetric.h>
#include <lockstep/comm/backends/shm/waiter.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::shm {

/// One rank's view of a group. May be used from several threads of the rank. All ranks must post
/// the same collectives in the same order. Throws CommError when a peer died, left, aborted or made
/// a different call, and TimeoutError at a deadline. An error aborts the group for all ranks.
class Engine : public comm::Progressing, public std::enable_shared_from_this<Engine> {
 public:
  /// One past the number of a call's last chunk. wait(ticket) waits for all chunks before it.
  using Ticket = std::uint32_t;

  static std::size_t control_bytes(int size, const EngineOptions& options = {});

  /// `control` is the group's control segment, zeroed when the first rank attaches.
  Engine(std::shared_ptr<Segment> control, int rank, int size, EngineOptions options = {});
  /// Leaves the group without blocking. Peers that still wait for this rank throw CommError.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return state_.rank; }
  int size() const { return state_.size; }

  /// Maps the pages of this rank's incoming rings, so that the first messages do not have to. Call
  /// it when all ranks have attached: the constructor allocates the pages of the outgoing rings.
  void map_incoming() const;

  /// From this call on, waits detect the death of a peer. `pids[r]` is the process of rank r.
  void watch(const std::vector<pid_t>& pids) { state_.end.watch(pids); }

  /// Starts a collective. `input` and `output` have the layout described at Collective
  /// (comm/call/collective.h), and are null if the rank has no input or output. For broadcast,
  /// reduce and all_reduce, both point to the same memory. The engine accesses them, and holds
  /// their owner `keep_alive`, until the call is complete.
  Ticket post(const CallDescription& call, std::uint64_t number, const std::byte* input,
              std::byte* output, std::shared_ptr<const void> keep_alive = nullptr);

  /// post() followed by wait(), under a single lock if the call completes within a microsecond.
  /// `meanwhile` is called once, when peers can see what this rank has posted.
  void run(const CallDescription& call, std::uint64_t number, const std::byte* input,
           std::byte* output, std::chrono::milliseconds timeout,
           const std::function<void()>& meanwhile);

  /// Starts a message. `call` is a kSend or kRecv whose root is the peer, which must not be this
  /// rank. Both sides must pass the same `fingerprint` (see MessageTag).
  std::shared_ptr<Transfer> post(const CallDescription& call, int tag, std::byte* data,
                                 std::shared_ptr<const void> keep_alive = nullptr,
                                 std::uint32_t fingerprint = 0);

  /// Advances all operations. Returns whether all chunks before `ticket` are complete. Throws like
  /// wait().
  bool test(Ticket ticket) { return waiter_.test({.ticket = ticket}); }
  bool test(const Transfer& transfer) { return waiter_.test({.transfer = &transfer}); }
  void wait(Ticket ticket, std::chrono::milliseconds timeout) {
    waiter_.wait({.ticket = ticket}, timeout);
  }
  void wait(const Transfer& transfer, std::chrono::milliseconds timeout) {
    waiter_.wait({.transfer = &transfer}, timeout);
  }

  /// Collective. Allocates zeroed, page-aligned symmetric memory. Each rank releases its mapping
  /// when the last owner on that rank releases the memory. If the host does not have enough memory,
  /// throws ConfigError on all ranks; the group remains usable.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, std::chrono::milliseconds timeout);

  /// The place of [data, data + bytes) in symmetric memory; nullopt for any other memory, including
  /// a peer's slice.
  std::optional<SymmetricPlace> place_of(const std::byte* data, std::size_t bytes) const {
    return registry_.find(data, bytes);
  }

  /// Aborts the group for all ranks. `late`: peers throw TimeoutError instead of CommError.
  void abort(const std::string& reason, bool late = false) { state_.end.abort(reason, late); }

  /// Throws CommError when the group has been aborted, or a watched peer is dead or has left.
  void check();
  /// Like check(), but does not treat a peer that has left as an error.
  void throw_if_ended() { state_.throw_if_ended(); }

  bool advance() noexcept override;
  void awaited_words(std::vector<comm::AwaitedWord>& words) override {
    waiter_.awaited_words(words);
  }

 private:
  void run_unguarded(const CollectiveRequest& request, std::chrono::milliseconds timeout,
                     const std::function<void()>& meanwhile);
  std::optional<SymmetricPlace> place_to_use(const CollectiveRequest& request) const;
  std::shared_ptr<SymmetricAllocation> share_allocation(std::size_t bytes,
                                                        std::chrono::milliseconds timeout);

  EngineState state_;
  Waiter waiter_;
  SymmetricRegistry registry_;
  std::atomic<std::uint32_t> next_allocation_ = 0;
};

}  // namespace lockstep::shm
