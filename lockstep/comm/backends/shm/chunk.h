// One chunk of a collective, and what each rank does with it in the three stages.
//
// Notation: all "pieces" of a call have the same size. In broadcast, reduce, all_reduce, gather and
// all_gather a rank contributes one piece; in the other calls it contributes one piece per rank.
// Pieces outside symmetric memory are cut into chunks that fit into a staging slot. The columns
// "before the work" and "before the release" name the ranks that must have arrived or worked.
//
//                   before the work   work                               before the release
//   barrier         all               -                                  -
//   broadcast       the root          copy the root's chunk              -
//     symmetric     all               copy most of it; the root writes   all
//                                     the rest to each peer
//   scatter         the root          copy own part of the root's chunk  -
//   gather          root: all         root: copy all pieces              -
//   all_gather      all               copy all pieces                    -
//   all_to_all      all               copy own part of all chunks        -
//   reduce_scatter  all               combine own part of all chunks     -
//   all_reduce      all               small: combine everything          -
//                                     else: combine own share            all; copy their shares
//   reduce          all               like all_reduce; result on root    like all_reduce; on root
//
// The owner of symmetric memory may change it only after all ranks have worked on the chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/symmetric.h>

namespace lockstep::shm {

struct Chunk {
  ChunkDescription description;
  const std::byte* input = nullptr;  ///< this chunk of the first piece that this rank contributes
  std::byte* output = nullptr;       ///< this chunk of the first piece that this rank receives
  std::size_t bytes = 0;             ///< size of the chunk within one piece
  std::size_t stride = 0;            ///< bytes of a whole piece: the distance to the next rank's
  std::optional<SymmetricPlace> place;  ///< place of `input` on all ranks; absent if staged
  bool small = false;                   ///< every rank combines everything, which saves one stage
  bool streamed = false;                ///< staged with streaming stores (this rank's own choice)
  std::uint32_t sequence = 0;           ///< the number of this chunk
  bool staged = false;                  ///< whether the chunk uses `slot`
  std::uint32_t slot = 0;
  /// All ranks must have released this many chunks before the slot may be used.
  std::uint32_t slot_free_at = 0;
  std::shared_ptr<const void> keep_alive;
};

/// The number of bytes of a piece that fit into one chunk.
std::size_t chunk_bytes(CallKind kind, int size, std::size_t slot_bytes, std::size_t element_bytes);

/// Executes one rank's stages of its chunks. Holds no state except memory locations.
class ChunkStages {
 public:
  ChunkStages(const Control& control, int rank)
      : control_(control), rank_(rank), size_(control.size()) {}

  /// Whether the chunk's data is stored in the Arrival, so that it needs no slot.
  static bool is_inline(const Chunk& chunk);

  /// The peers that a stage waits for.
  enum class Others { kNobody, kRoot, kAll };

  void arrive(const Chunk& chunk) const;
  /// Prefetches the peers' data of a very small chunk, so that it arrives together with the counter
  /// that announces it.
  void expect(const Chunk& chunk) const;
  Others before_work(const Chunk& chunk) const;
  void work(const Chunk& chunk) const;
  Others before_release(const Chunk& chunk) const;
  void release(const Chunk& chunk) const;
  /// Whether peers wait until this rank has worked on the chunk; if so, it publishes `worked`.
  bool work_is_awaited(const Chunk& chunk) const;

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  bool is_root(const Chunk& chunk) const;
  bool two_stages(const Chunk& chunk) const;
  Range share(const Chunk& chunk, int rank) const;
  std::size_t part_bytes() const;
  const std::byte* given(const Chunk& chunk, int rank) const;
  std::byte* staging(const Chunk& chunk, int rank) const;
  void combine(const Chunk& chunk) const;
  void combine_share(const Chunk& chunk) const;
  void combine_staged_share(const Chunk& chunk, const std::byte* const* sources, Range mine,
                            bool all) const;
  void take_pieces(const Chunk& chunk) const;
  void copy_between(const Chunk& chunk) const;
  void reduce_into(const Chunk& chunk, const std::byte* const* sources,
                   std::byte* const* destinations, std::size_t destination_count,
                   std::size_t bytes) const;

  const Control& control_;
  int rank_;
  int size_;
};

}  // namespace lockstep::shm
