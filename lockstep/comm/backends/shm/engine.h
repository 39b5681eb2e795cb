// The shared-memory engine: collectives and messages between the processes of one host. It does not
// use LibTorch and has no thread of its own.
//
// A collective is cut into chunks, which move through three stages (control.h, chunk.h):
// arrive, work, release. Every call into the engine advances all chunks and all messages
// (channels.h) as far as possible. wait() does so until the given operation is complete: it first
// spins, then sleeps on the words that are missing (patience.h). Data in symmetric memory is used
// in place; other data is copied through staging slots of the control segment.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/channels.h>
#include <lockstep/comm/backends/shm/chunk.h>
#include <lockstep/comm/backends/shm/chunk_queue.h>
#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/liveness.h>
#include <lockstep/comm/backends/shm/segment.h>
#include <lockstep/comm/backends/shm/sharing_cost.h>
#include <lockstep/comm/backends/shm/symmetric.h>
#include <lockstep/comm/waiting/patience.h>
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

struct EngineOptions {
  PatienceOptions patience{};
  /// Bytes of one staging slot. Small enough that a chunk is still in the cache when it is
  /// combined.
  std::size_t slot_bytes = std::size_t{256} << 10;
  /// Up to this size, in bytes, every rank combines the whole chunk, which takes one round of
  /// waiting instead of two.
  std::size_t small_bytes = std::size_t{8} << 10;
  /// Symmetric memory is used in place from this size on, in bytes. Below it, the additional round
  /// of waiting costs more than a copy.
  std::size_t in_place_bytes = 1024;
  /// The ranks' names in error messages; empty: 0, 1, ...
  std::vector<int> world_ranks{};
  /// The operations that this process has under way in all groups; may be null.
  std::shared_ptr<Progress> progress{};
};

/// One rank's view of a group. May be used from several threads of the rank. All ranks must post
/// the same collectives in the same order. Throws CommError when a peer died, left, aborted or made
/// a different call, and TimeoutError at a deadline. An error aborts the group for all ranks.
class Engine : public Progressing, public std::enable_shared_from_this<Engine> {
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

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Maps the pages of this rank's incoming rings, so that the first messages need not. Call it
  /// when all ranks have attached: the constructor allocates the pages of the outgoing rings.
  void map_incoming() const;

  /// From this call on, waits detect the death of a peer. `pids[r]` is the process of rank r.
  void watch(const std::vector<pid_t>& pids);

  /// Starts a collective. `input` and `output` have the layout described at Collective
  /// (comm/collective.h), and are null if the rank has no input or output. For broadcast, reduce
  /// and all_reduce both are the same memory. The engine accesses them, and holds their owner
  /// `keep_alive`, until the call is complete.
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
  bool test(Ticket ticket);
  bool test(const Transfer& transfer);
  void wait(Ticket ticket, std::chrono::milliseconds timeout);
  void wait(const Transfer& transfer, std::chrono::milliseconds timeout);

  /// Collective. Allocates zeroed, page-aligned symmetric memory. Each rank frees its own when its
  /// last owner releases it. If the host does not have enough memory, throws ConfigError on all
  /// ranks; the group remains usable.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, std::chrono::milliseconds timeout);

  /// The place of [data, data + bytes) in symmetric memory; nullopt for any other memory, including
  /// a peer's slice.
  std::optional<SymmetricPlace> place_of(const std::byte* data, std::size_t bytes) const {
    return registry_.find(data, bytes);
  }

  /// Aborts the group for all ranks. `late`: peers throw TimeoutError instead of CommError.
  void abort(const std::string& reason, bool late = false);

  /// Throws CommError when the group has been aborted, or a watched peer is dead or has left.
  void check();
  /// Like check(), but does not treat a peer that has left as an error.
  void throw_if_ended();

  bool advance() noexcept override;
  void awaited_words(std::vector<AwaitedWord>& words) override;

 private:
  /// The condition that blocks the oldest chunk: a rank, its word, and the value it must reach.
  struct Blocker {
    int rank = -1;
    Word* word = nullptr;
    std::uint32_t seen = 0;
    const char* verb = "";
  };
  /// The condition that a wait waits for.
  struct Goal {
    const Transfer* transfer = nullptr;  // null: wait for `ticket`
    Ticket ticket = 0;
  };

  /// The arguments of post().
  struct Request {
    const CallDescription& call;
    std::uint64_t number;
    const std::byte* input;
    std::byte* output;
    std::size_t piece_bytes = call.count * element_size(call.type);
  };
  void post_chunks(const Request& request, std::optional<SymmetricPlace> place,
                   std::shared_ptr<const void> keep_alive);
  Chunk& push(const Request& request, std::size_t offset, std::size_t bytes);
  std::optional<SymmetricPlace> place_to_use(const Request& request) const;
  std::optional<SymmetricPlace> find_place(const Request& request) const;

  bool advance_locked();
  bool advance_all();
  bool try_arrive();
  bool try_work();
  bool try_release();
  bool advance_channels();
  void publish(Word& word, std::uint32_t value);
  void wake_sleepers();
  void run_unguarded(const Request& request, std::chrono::milliseconds timeout,
                     const std::function<void()>& meanwhile);
  bool can_run_tiny(const Request& request);
  bool run_tiny(const Request& request, int looks, const std::function<void()>& meanwhile);
  void compare(const Chunk& chunk, Stages::Others others);
  std::string disagreement(std::uint32_t sequence, int peer) const;
  bool should_stream(const Chunk& chunk) const;
  bool all_released(std::uint32_t wanted);
  template <class WordOf>
  std::optional<Blocker> find_blocker(Stages::Others others, int root, const WordOf& word_of,
                                      std::uint32_t wanted, const char* verb) const;
  std::optional<Blocker> not_arrived(const Chunk& chunk) const;
  std::optional<Blocker> not_worked(const Chunk& chunk) const;
  std::optional<Blocker> not_released(std::uint32_t wanted) const;
  std::optional<Blocker> blocker() const;

  bool reached(const Goal& goal);
  bool reached(const Goal& goal, bool& moved);
  bool test_goal(const Goal& goal);
  void wait_for(const Goal& goal, std::chrono::milliseconds timeout);
  void give_up_if_hopeless(const Goal& goal, const Deadline& deadline,
                           std::chrono::milliseconds timeout);
  std::string reason_to_give_up(const Goal& goal, const Deadline& deadline,
                                std::chrono::milliseconds timeout, bool& late);
  std::string what(const Goal& goal) const;
  std::string why_gone(const Goal& goal) const;
  std::string why_gone(int rank) const;
  bool died(int rank) const;
  std::string whom(const Goal& goal) const;
  std::string stopped() const;
  std::string last_call(int rank) const;
  std::string rank_name(int rank) const;

  void wake_all(int rank) const;
  void throw_if_aborted();
  [[noreturn]] void fail(const std::string& reason);
  std::shared_ptr<SymmetricAllocation> share_allocation(std::size_t bytes,
                                                        std::chrono::milliseconds timeout);

  const std::shared_ptr<Segment> memory_;
  const Control control_;
  const int rank_;
  const int size_;
  const EngineOptions options_;
  const Stages stages_;
  std::optional<Liveness> liveness_;
  SymmetricRegistry registry_;
  std::atomic<std::uint32_t> next_allocation_ = 0;
  std::atomic<Clock::rep> next_doubt_ = 0;  // when a test checks next whether the peers are alive
  std::atomic<bool> failed_ = false;        // this rank has failed and moves no more data

  std::mutex mutex_;  // guards the members below
  SharingCost sharing_cost_;
  Channels channels_;
  std::vector<Word*> published_;  // words whose sleepers have not been woken yet
  ChunkQueue pending_;            // chunks released_ ... posted_ - 1
  std::array<std::uint32_t, kSlots> slot_free_at_{};
  std::uint32_t next_slot_ = 0;
  std::uint64_t history_ = 0;  // fingerprint of all chunks that this rank has arrived at
  std::uint32_t posted_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t worked_ = 0;
  std::uint32_t released_ = 0;
  std::uint32_t all_released_ = 0;  // a lower bound of the chunks that all ranks have released
};

}  // namespace lockstep::shm
