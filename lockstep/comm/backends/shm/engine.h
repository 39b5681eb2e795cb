// The shared-memory engine: collectives and messages of the processes of one host, without LibTorch
// and without a thread of its own.
//
// A collective is cut into chunks, which move through three stages (control.h, operation.h):
// arrive, work, release. Any call into the engine moves all of them, and all messages (channels.h),
// as far as they can go; wait() does so until the wanted one is through, first spinning, then
// sleeping on the words that are missing (patience.h). Data in symmetric memory is used where it
// lies; other data goes through staging slots of the control segment.
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
#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/liveness.h>
#include <lockstep/comm/backends/shm/operation.h>
#include <lockstep/comm/backends/shm/operation_queue.h>
#include <lockstep/comm/backends/shm/segment.h>
#include <lockstep/comm/backends/shm/sharing_cost.h>
#include <lockstep/comm/backends/shm/symmetric.h>
#include <lockstep/comm/waiting/patience.h>
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

struct EngineOptions {
  PatienceOptions patience{};
  /// Bytes of one staging slot: small enough that chunks are still in the cache when they are
  /// combined.
  std::size_t slot_bytes = std::size_t{256} << 10;
  /// Up to this size, in bytes, every rank combines everything itself, which takes one round of
  /// waiting instead of two.
  std::size_t small_bytes = std::size_t{8} << 10;
  /// Symmetric memory is used in place from this size on, in bytes. Below it, one more round of
  /// waiting costs more than a copy.
  std::size_t in_place_bytes = 1024;
  /// The names of the ranks in messages; 0, 1, ... where empty.
  std::vector<int> world_ranks{};
  /// Other operations that this process has under way; may be null.
  std::shared_ptr<Progress> progress{};
};

/// One rank's view of a group. Safe to use from several threads of the rank; all ranks must post
/// the same collectives in the same order. Errors: CommError when a peer died, left, aborted or
/// called something else; TimeoutError at a deadline. After an error the group is aborted for all
/// ranks.
class Engine : public Progressing, public std::enable_shared_from_this<Engine> {
 public:
  /// The number after the last chunk of a call; wait(ticket) waits for all before it.
  using Ticket = std::uint32_t;

  static std::size_t control_bytes(int size, const EngineOptions& options = {});

  /// `control` is the group's control segment, zeroed when the first rank attaches.
  Engine(std::shared_ptr<Segment> control, int rank, int size, EngineOptions options = {});
  /// Leaves the group; peers that still wait for this rank get a CommError. Does not block.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Puts the pages of the rings there in which this rank's messages come, when all ranks have
  /// attached (and so have put there those that they fill): else the first messages would.
  void map_incoming() const;

  /// From now on waits notice the death of a peer. `pids[r]` is the process of rank r.
  void watch(const std::vector<pid_t>& pids);

  /// Starts a collective. `input` and `output` as Collective (comm/collective.h) has them, null
  /// where a rank gives or gets nothing; for broadcast, reduce and all_reduce both are the same
  /// memory. The engine uses them until the call is complete, and holds `keep_alive`, their owner,
  /// as long.
  Ticket post(const CallDescription& call, std::uint64_t number, const std::byte* input,
              std::byte* output, std::shared_ptr<const void> keep_alive = nullptr);

  /// post() and wait() in one, without a lock in between where it is over within a microsecond.
  /// `meanwhile` is called once, when peers can see what this rank has posted.
  void run(const CallDescription& call, std::uint64_t number, const std::byte* input,
           std::byte* output, std::chrono::milliseconds timeout,
           const std::function<void()>& meanwhile);

  /// Starts a message. `call` is a kSend or kRecv whose root is the peer, not this rank. Both sides
  /// give the same `fingerprint` (MessageTag).
  std::shared_ptr<Transfer> post(const CallDescription& call, int tag, std::byte* data,
                                 std::shared_ptr<const void> keep_alive = nullptr,
                                 std::uint32_t fingerprint = 0);

  /// Moves what can be moved; true when everything before `ticket` is complete. Throws as wait().
  bool test(Ticket ticket);
  bool test(const Transfer& transfer);
  void wait(Ticket ticket, std::chrono::milliseconds timeout);
  void wait(const Transfer& transfer, std::chrono::milliseconds timeout);

  /// Collective. Zeroed symmetric memory, page aligned; freed when the last owner lets go, on each
  /// rank by itself. ConfigError on all ranks, and the group goes on, where this host has not as
  /// much left.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, std::chrono::milliseconds timeout);

  /// Where [data, data + bytes) lies in such memory. Nothing for other memory, that of a peer's
  /// slice too.
  std::optional<SymmetricPlace> place_of(const std::byte* data, std::size_t bytes) const {
    return registry_.find(data, bytes);
  }

  /// `late`: as TimeoutError.
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
    const Transfer* transfer = nullptr;  // else:
    Ticket ticket = 0;
  };

  /// The argument of post().
  struct Request {
    const CallDescription& call;
    std::uint64_t number;
    const std::byte* input;
    std::byte* output;
    std::size_t piece_bytes = call.count * element_size(call.type);
  };
  void post_chunks(const Request& request, std::optional<SymmetricPlace> place,
                   std::shared_ptr<const void> keep_alive);
  Operation& push(const Request& request, std::size_t offset, std::size_t bytes);
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
  void compare(const Operation& operation, Stages::Others others);
  std::string disagreement(std::uint32_t sequence, int peer) const;
  bool should_stream(const Operation& operation) const;
  bool all_released(std::uint32_t wanted);
  template <class WordOf>
  std::optional<Blocker> find_blocker(Stages::Others others, int root, const WordOf& word_of,
                                      std::uint32_t wanted, const char* verb) const;
  std::optional<Blocker> not_arrived(const Operation& operation) const;
  std::optional<Blocker> not_worked(const Operation& operation) const;
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
  std::shared_ptr<SymmetricRange> share_range(std::size_t bytes, std::chrono::milliseconds timeout);

  const std::shared_ptr<Segment> memory_;
  const Control control_;
  const int rank_;
  const int size_;
  const EngineOptions options_;
  const Stages stages_;
  std::optional<Liveness> liveness_;
  SymmetricRegistry registry_;
  std::atomic<std::uint32_t> next_range_ = 0;
  std::atomic<Clock::rep> next_doubt_ = 0;  // when a test looks again whether the peers live
  std::atomic<bool> failed_ = false;        // this rank gave up: nothing of its moves any more

  std::mutex mutex_;  // guards the members below
  SharingCost sharing_cost_;
  Channels channels_;
  std::vector<Word*> published_;  // whose sleepers have not been woken yet
  OperationQueue pending_;        // chunks released_ ... posted_ - 1
  std::array<std::uint32_t, kSlots> slot_free_at_{};
  std::uint32_t next_slot_ = 0;
  std::uint64_t history_ = 0;  // of all that this rank has arrived at
  std::uint32_t posted_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t worked_ = 0;
  std::uint32_t released_ = 0;
  std::uint32_t all_released_ = 0;  // chunks that all ranks had released at the last look, or fewer
};

}  // namespace lockstep::shm
