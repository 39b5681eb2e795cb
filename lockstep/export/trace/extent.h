// A size that may follow the batch.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::onnx {

/// `size` is the value in the recorded run. In other runs it is per_batch * batch + offset.
struct Extent {
  std::int64_t size = 0;
  std::int64_t per_batch = 0;
  std::int64_t offset = 0;

  bool is_static() const { return per_batch == 0; }
  /// Whether the value is 0 for some batch of at least one sample.
  bool may_be_zero() const { return per_batch < 0 || per_batch + offset <= 0; }
  bool is_batch() const { return per_batch == 1 && offset == 0; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

using Extents = std::vector<Extent>;

inline Extent static_extent(std::int64_t size) { return {.size = size, .offset = size}; }

}  // namespace lockstep::onnx
