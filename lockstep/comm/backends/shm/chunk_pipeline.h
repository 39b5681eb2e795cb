// Moves the chunks of one rank's collectives through the three stages of chunk.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/chunk.h>
#include <lockstep/comm/backends/shm/chunk_queue.h>
#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/group_end.h>
#include <lockstep/comm/backends/shm/sharing_cost.h>
#include <lockstep/comm/backends/shm/symmetric.h>

namespace lockstep::shm {

/// A collective as Engine::post() describes it.
struct CollectiveRequest {
  const CallDescription& call;
  std::uint64_t number;
  const std::byte* input;
  std::byte* output;
  std::size_t piece_bytes = call.count * detail::element_size(call.type);
};

/// Not thread-safe: the engine's lock guards it. Its functions throw CommError, and abort the
/// group, when a peer made a different call.
class ChunkPipeline {
 public:
  /// Chunks of at most `small_bytes` are combined whole by every rank.
  ChunkPipeline(const Control& control, int rank, std::size_t small_bytes,
                SharingCost& sharing_cost, GroupEnd& end);

  /// The number of chunks posted so far, and how many of them are complete.
  std::uint32_t posted() const { return posted_; }
  std::uint32_t released() const { return released_; }

  /// `place` is the input's place in symmetric memory if it is used without a copy.
  void post(const CollectiveRequest& request, std::optional<SymmetricPlace> place,
            std::shared_ptr<const void> keep_alive);

  /// Whether run_tiny() accepts the request, which must have no place in symmetric memory.
  bool can_run_tiny(const CollectiveRequest& request);
  /// Posts a chunk and performs all of its stages at once. Checks at most `looks` times whether the
  /// peers have arrived. If they have not, returns false, and the chunk completes in the regular
  /// stages. `meanwhile` is called when peers can see the arrival.
  bool run_tiny(const CollectiveRequest& request, int looks,
                const std::function<void()>& meanwhile);

  /// Tries each stage once. Returns whether a chunk moved.
  bool advance();

  /// What blocks the oldest chunk: a rank, the word that it has yet to change, and the word's last
  /// value.
  struct Blocker {
    int rank = -1;
    Word* word = nullptr;
    std::uint32_t seen = 0;
    const char* verb = "";  ///< what the rank has yet to do, such as "arrive at"
  };
  /// Nullopt if the oldest chunk can advance.
  std::optional<Blocker> blocker() const;
  /// The oldest chunk that is not complete, for error messages.
  std::string oldest() const;

  /// Wakes the peers that sleep on words published since the last call. advance() does not,
  /// because checking for sleepers takes as long as polling a peer.
  void wake_sleepers();
  bool has_sleepers_to_wake() const { return !published_.empty(); }

 private:
  Chunk& push(const CollectiveRequest& request, std::size_t offset, std::size_t bytes);
  bool try_arrive();
  bool try_work();
  bool try_release();
  void publish(Word& word, std::uint32_t value);
  void compare(const Chunk& chunk, ChunkStages::Others others);
  std::string disagreement(std::uint32_t sequence, int peer) const;
  bool should_stream(const Chunk& chunk) const;
  bool all_released(std::uint32_t wanted);
  template <class WordOf>
  std::optional<Blocker> find_blocker(ChunkStages::Others others, int root, const WordOf& word_of,
                                      std::uint32_t wanted, const char* verb) const;
  std::optional<Blocker> not_arrived(const Chunk& chunk) const;
  std::optional<Blocker> not_worked(const Chunk& chunk) const;
  std::optional<Blocker> not_released(std::uint32_t wanted) const;

  const Control& control_;
  const int rank_;
  const int size_;
  const std::size_t small_bytes_;
  const ChunkStages stages_;
  SharingCost& sharing_cost_;
  GroupEnd& end_;
  std::vector<Word*> published_;  // words whose sleepers have not been woken yet
  ChunkQueue pending_;            // chunks released_ ... posted_ - 1
  std::array<std::uint32_t, kSlots> slot_free_at_{};
  std::uint32_t next_slot_ = 0;
  std::uint64_t history_ = 0;  // fingerprint of all chunks that this rank has arrived at
  std::uint32_t posted_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t worked_ = 0;
  std::uint32_t released_ = 0;
  std::uint32_t all_released_ = 0;  // a lower bound on the chunks that all ranks released
};

}  // namespace lockstep::shm
