// IDX, the format of MNIST: big-endian magic number and dimensions, then unsigned bytes.
//
// Source: the MNIST page of LeCun, Cortes, Burges. Magic 0x00000803: three dimensions (images,
// rows, columns); 0x00000801: one dimension (labels).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::formats {

inline constexpr std::size_t kIdxImagesHeaderBytes = 16;
inline constexpr std::size_t kIdxLabelsHeaderBytes = 8;

/// A view into the parsed bytes: `count` images of height * width bytes, one after the other.
struct IdxImages {
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  const std::uint8_t* pixels = nullptr;
};

/// A view into the parsed bytes: `count` labels of one byte each.
struct IdxLabels {
  std::int64_t count = 0;
  const std::uint8_t* labels = nullptr;
};

/// Both functions throw a DataError that begins with `name` if the magic number is wrong (the
/// message recognises a labels file passed as images), a dimension is 0 or an image side above
/// 65,536, or the size does not match the dimensions exactly. The views live as long as `bytes`.
IdxImages parse_idx_images(std::span<const std::byte> bytes, std::string_view name);
IdxLabels parse_idx_labels(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::formats
