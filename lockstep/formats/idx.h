// IDX, the format of MNIST: big-endian magic number and dimensions, then unsigned bytes.
//
// Source: the MNIST page of LeCun, Cortes, Burges. Magic 0x00000803: three dimensions (images,
// rows, columns); 0x00000801: one dimension (labels).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

inline constexpr std::size_t kIdxImagesHeaderBytes = 16;
inline constexpr std::size_t kIdxLabelsHeaderBytes = 8;

/// A view into the bytes that were parsed: `count` images of height * width bytes, one after the
/// other.
struct IdxImages {
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  const std::uint8_t* pixels = nullptr;
};

/// A view into the bytes that were parsed: `count` labels of one byte each.
struct IdxLabels {
  std::int64_t count = 0;
  const std::uint8_t* labels = nullptr;
};

/// Both throw DataError, beginning with `name`, when the magic number is another one (a labels file
/// given as images is called that), a dimension is 0 or an image side above 65,536, or the size is
/// not exactly what the dimensions ask for. The views live as long as `bytes`.
IdxImages parse_idx_images(std::span<const std::byte> bytes, std::string_view name);
IdxLabels parse_idx_labels(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep
