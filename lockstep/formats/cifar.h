// The binary version of CIFAR-10: records of one label byte and 3,072 pixel bytes.
//
// Source: https://www.cs.toronto.edu/~kriz/cifar.html. The pixels are the red, green and blue plane
// of a 32x32 image, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarPixelBytes = 3 * kCifarSide * kCifarSide;
inline constexpr std::int64_t kCifarRecordBytes = 1 + kCifarPixelBytes;
inline constexpr std::int64_t kCifar10Classes = 10;

/// A view into the bytes that were parsed: record i begins at records + i * kCifarRecordBytes with
/// its label; its pixels follow.
struct CifarRecords {
  std::int64_t count = 0;
  const std::uint8_t* records = nullptr;
};

/// DataError, beginning with `name`, unless `bytes` is exactly `expected_count` records and every
/// label is 0 to 9. The view lives as long as `bytes`.
CifarRecords parse_cifar10(std::span<const std::byte> bytes, std::int64_t expected_count,
                           std::string_view name);

}  // namespace lockstep
