// Symmetric memory: a segment with one slice per rank. Each place in a rank's own slice has a
// counterpart in every peer's slice, which the rank can read and write directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <lockstep/comm/backends/shm/segment.h>

namespace lockstep::shm {

/// One collective allocation, as seen by one rank.
struct SymmetricAllocation {
  std::uint32_t id = 0;  ///< equal on all ranks
  std::shared_ptr<Segment> segment;
  std::size_t stride = 0;  ///< bytes of one rank's slice
  int rank = 0;

  std::byte* slice(int of_rank) const {
    return segment->data() + static_cast<std::size_t>(of_rank) * stride;
  }
};

/// A place inside an allocation. Its counterpart on rank r is at allocation->slice(r) + offset.
struct SymmetricPlace {
  std::shared_ptr<const SymmetricAllocation> allocation;
  std::size_t offset = 0;
};

/// Finds the symmetric allocation that a pointer belongs to. Safe to call from any thread.
class SymmetricRegistry {
 public:
  void add(std::shared_ptr<const SymmetricAllocation> allocation);
  void remove(const SymmetricAllocation* allocation);
  /// The place of [data, data + bytes) if it lies entirely in this rank's slice of one allocation,
  /// else nullopt.
  std::optional<SymmetricPlace> find(const std::byte* data, std::size_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const SymmetricAllocation>> allocations_;
};

}  // namespace lockstep::shm
