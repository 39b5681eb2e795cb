// The shared-memory engine: collectives of the processes of one host, without LibTorch and without a
// thread of its own.
//
// An operation is posted and then moves through three stages (see control.h): arrive, reduce,
// release. Any call into the engine moves all operations as far as they can go; wait() does so until
// the wanted one is through, first spinning, then sleeping on the word that is missing. Data in
// symmetric memory is reduced where it lies: rank r adds the r-th share of all ranks' buffers and
// writes the result into all of them. Other data goes through staging slots of the control segment,
// in chunks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/liveness.h>
#include <lockstep/comm/backends/shm/segment.h>
#include <lockstep/comm/backends/shm/symmetric.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

struct EngineOptions {
  /// How long a wait spins before it sleeps. Zero when more ranks than processors share them: a
  /// spinning rank would steal the time of the one it waits for.
  std::chrono::microseconds spin{200};
  /// Bytes of one staging slot: small enough that a chunk is still in the cache when it is added.
  std::size_t slot_bytes = std::size_t{256} << 10;
};

/// One rank's view of a group. Safe to use from several threads of the rank; all ranks must post the
/// same operations in the same order. Errors: CommError when a peer died, left, aborted or called
/// something else; TimeoutError at a deadline. After an error the group is aborted for all ranks.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// The number after the last operation of a call; wait(ticket) waits for all before it.
  using Ticket = std::uint32_t;

  static std::size_t control_bytes(int size, const EngineOptions& options = {});

  /// `control` is the group's control segment, zeroed when the first rank attaches.
  Engine(std::shared_ptr<Segment> control, int rank, int size, const EngineOptions& options = {});
  /// Leaves the group; peers that still wait for this rank get a CommError. Does not block.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// From now on waits notice the death of a peer. `pids[r]` is the process of rank r.
  void watch(const std::vector<pid_t>& pids);

  /// The engine reads and writes `data` until the operation is complete, and holds `keep_alive`, its
  /// owner, as long.
  Ticket post_all_reduce(std::byte* data, std::size_t count, DataType type, ReduceOp op,
                         std::shared_ptr<const void> keep_alive = nullptr);
  Ticket post_broadcast(std::byte* data, std::size_t bytes, int root,
                        std::shared_ptr<const void> keep_alive = nullptr);
  Ticket post_barrier();

  /// Moves what can be moved; true when everything before `ticket` is complete.
  bool test(Ticket ticket);
  void wait(Ticket ticket, std::chrono::milliseconds timeout);

  /// Collective. Zeroed symmetric memory, cache-line aligned; freed when the last owner lets go, on
  /// each rank by itself.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, std::chrono::milliseconds timeout);

  void abort(const std::string& reason);

  /// Throws CommError when the group has been aborted, or a watched peer is dead or has left.
  void check();

 private:
  struct Operation {
    OperationDescription description;
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< of this chunk
    std::optional<SymmetricPlace> place;
    std::shared_ptr<const void> keep_alive;
  };
  /// The word that keeps the oldest operation from moving, and the value that it must reach.
  struct Blocker {
    int rank = -1;
    Word* word = nullptr;
    std::uint32_t wanted = 0;
    const char* verb = "";
  };

  ControlHeader& header() const;
  RankState& state(int rank) const;
  std::byte* slot(int rank, std::uint32_t sequence) const;
  Operation& operation(std::uint32_t sequence) { return pending_[sequence - released_]; }

  Ticket post(std::byte* data, std::size_t bytes, OperationDescription description,
              std::shared_ptr<const void> keep_alive);
  bool advance();
  bool try_arrive();
  bool try_reduce();
  bool try_release();
  void perform(const Operation& operation, std::uint32_t sequence);
  std::optional<Blocker> find_blocker(Word RankState::* word, std::uint32_t wanted,
                                      const char* verb) const;
  std::optional<Blocker> blocker() const;
  void publish(Word& word, std::uint32_t value);
  void compare_descriptions(std::uint32_t sequence);

  void throw_if_aborted();
  [[noreturn]] void fail(const std::string& reason);
  void sleep_on(const Blocker& blocker, const Deadline& deadline);
  void check_progress(const Deadline& deadline, std::chrono::milliseconds timeout);
  std::string why_gone(int rank) const;
  std::string last_call(int rank) const;
  std::shared_ptr<SymmetricRange> share_range(std::size_t bytes, std::chrono::milliseconds timeout);

  const std::shared_ptr<Segment> control_;
  const int rank_;
  const int size_;
  const EngineOptions options_;
  std::optional<Liveness> liveness_;
  SymmetricRegistry registry_;
  std::uint32_t next_range_ = 0;
  std::atomic<bool> failed_ = false;  // this rank gave up: nothing of its moves any more

  std::mutex mutex_;  // guards what follows
  std::deque<Operation> pending_;  // operations released_ ... posted_ - 1
  std::uint32_t posted_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t reduced_ = 0;
  std::uint32_t released_ = 0;
};

}  // namespace lockstep::shm
