// The binary versions of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3,072 pixel
// bytes.
//
// Source: https://www.cs.toronto.edu/~kriz/cifar.html. The pixels are the red, green and blue plane
// of a 32x32 image, row by row. CIFAR-100's first label is the coarse one, its second the fine one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::formats {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarPixelBytes = 3 * kCifarSide * kCifarSide;
inline constexpr std::int64_t kCifarRecordBytes = 1 + kCifarPixelBytes;
inline constexpr std::int64_t kCifar100RecordBytes = 2 + kCifarPixelBytes;
inline constexpr std::int64_t kCifar10Classes = 10;
inline constexpr std::int64_t kCifar100Classes = 100;
inline constexpr std::int64_t kCifar100CoarseClasses = 20;

/// A view into the parsed bytes: record i begins at records + i * kCifarRecordBytes (or
/// kCifar100RecordBytes) with its label (or labels), followed by its pixels.
struct CifarRecords {
  std::int64_t count = 0;
  const std::uint8_t* records = nullptr;
};

/// Throws a DataError that begins with `name` unless `bytes` is exactly `expected_count` records
/// and every label is 0 to 9. The view lives as long as `bytes`.
CifarRecords parse_cifar10(std::span<const std::byte> bytes, std::int64_t expected_count,
                           std::string_view name);

/// Parses CIFAR-100: coarse labels 0 to 19, fine ones 0 to 99.
CifarRecords parse_cifar100(std::span<const std::byte> bytes, std::int64_t expected_count,
                            std::string_view name);

}  // namespace lockstep::formats
