// One chunk of a collective, and what each rank does with it in the three stages.
//
// Notation: a call gives every rank a "piece" of the same size. Some calls give one piece
// (broadcast, reduce, all_reduce, gather, all_gather), the others one for each rank. Pieces that do
// not lie in symmetric memory are cut into chunks that fit a staging slot.
//
//                   before the work   work                               before the release
//   barrier         all               -                                  -
//   broadcast       the root          take the root's chunk              -
//     symmetric     all               take most of it; the root gives    all
//                                     the rest to each: all copy alike
//   scatter         the root          take my part of the root's         -
//   gather          root: all         root: take all                     -
//   all_gather      all               take all                           -
//   all_to_all      all               take my part of all                -
//   reduce_scatter  all               combine my part of all             -
//   all_reduce      all               small: combine everything          -
//                                     else: combine my share             all; take their shares
//   reduce          all               the same for the root              the same for the root
//
// What is read in symmetric memory may be changed by its owner only after all have worked on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/symmetric.h>

namespace lockstep::shm {

struct Operation {
  ChunkDescription description;
  const std::byte* input = nullptr;  ///< this chunk of the (first) piece that this rank gives
  std::byte* output = nullptr;       ///< this chunk of the (first) piece that this rank gets
  std::size_t bytes = 0;             ///< of this chunk of one piece
  std::size_t stride = 0;            ///< from one rank's piece to the next: bytes of a whole piece
  std::optional<SymmetricPlace> place;  ///< of `input` on all ranks; absent: staged
  bool small = false;                   ///< one stage less: every rank combines everything
  bool streamed = false;                ///< staged past the caches (this rank's own choice)
  std::uint32_t sequence = 0;           ///< the number of this chunk
  bool staged = false;                  ///< has a slot:
  std::uint32_t slot = 0;
  std::uint32_t slot_free_at =
      0;  ///< all must have released this many chunks before the slot is ours
  std::shared_ptr<const void> keep_alive;
};

/// How much of a piece fits into one chunk.
std::size_t chunk_bytes(CallKind kind, int size, std::size_t slot_bytes, std::size_t element_bytes);

/// The steps of one rank for its chunks. Holds no state except memory locations.
class Stages {
 public:
  Stages(const Control& control, int rank)
      : control_(control), rank_(rank), size_(control.size()) {}

  /// Whether the chunk travels in the arrivals and needs no slot.
  static bool is_inline(const Operation& operation);

  /// The peers that a stage waits for.
  enum class Others { kNobody, kRoot, kAll };

  void arrive(const Operation& operation) const;
  /// Asks for the peers' data of a very small chunk, so that it comes together with the word that
  /// announces it.
  void expect(const Operation& operation) const;
  Others before_work(const Operation& operation) const;
  void work(const Operation& operation) const;
  Others before_release(const Operation& operation) const;
  void release(const Operation& operation) const;
  /// Whether a peer waits until this rank has worked: `worked` must be published.
  bool work_is_awaited(const Operation& operation) const;

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  bool is_root(const Operation& operation) const;
  bool two_stages(const Operation& operation) const;
  Range share(const Operation& operation, int rank) const;
  std::size_t part_bytes() const;
  const std::byte* given(const Operation& operation, int rank) const;
  std::byte* staging(const Operation& operation, int rank) const;
  void combine(const Operation& operation) const;
  void combine_share(const Operation& operation) const;
  void combine_staged_share(const Operation& operation, const std::byte* const* sources, Range mine,
                            bool all) const;
  void take_pieces(const Operation& operation) const;
  void copy_between(const Operation& operation) const;
  void reduce_into(const Operation& operation, const std::byte* const* sources,
                   std::byte* const* destinations, std::size_t destination_count,
                   std::size_t bytes) const;

  const Control& control_;
  int rank_;
  int size_;
};

}  // namespace lockstep::shm
