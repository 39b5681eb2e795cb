// A queue of chunks in the order of their numbers. It is a growing ring, so that posting a chunk
// usually allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/comm/backends/shm/chunk.h>

namespace lockstep::shm {

/// Holds the chunks first() ... first() + size() - 1. Numbers wrap around.
class ChunkQueue {
 public:
  ChunkQueue() : ring_(8) {}

  std::uint32_t first() const { return first_; }
  std::uint32_t size() const { return size_; }
  Chunk& at(std::uint32_t sequence) { return ring_[sequence & mask()]; }
  const Chunk& at(std::uint32_t sequence) const { return ring_[sequence & mask()]; }

  /// Appends a chunk in its initial state, except for its number.
  Chunk& push() {
    if (size_ == ring_.size()) grow();
    const std::uint32_t sequence = first_ + size_++;
    Chunk& chunk = at(sequence);
    chunk.sequence = sequence;
    return chunk;
  }

  /// Skips the number of a chunk that completed without being pushed. The queue must be empty.
  void skip() { ++first_; }

  void pop() {
    at(first_) = {};
    ++first_;
    --size_;
  }

 private:
  std::uint32_t mask() const { return static_cast<std::uint32_t>(ring_.size()) - 1; }
  void grow() {
    std::vector<Chunk> larger(2 * ring_.size());
    for (std::uint32_t i = 0; i < size_; ++i) {
      larger[(first_ + i) & (larger.size() - 1)] = std::move(at(first_ + i));
    }
    ring_ = std::move(larger);
  }

  std::vector<Chunk> ring_;  // the size is a power of two
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace lockstep::shm
