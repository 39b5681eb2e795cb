// Elements of every type for tests: generated, converted without the library, and stored at any
// address.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <lockstep/comm/kernels/reduce.h>

namespace lockstep::testing_support {

using Bytes = std::vector<std::byte>;

inline constexpr detail::DataType kTypes[] = {
    detail::DataType::kFloat32,  detail::DataType::kFloat64, detail::DataType::kFloat16,
    detail::DataType::kBFloat16, detail::DataType::kInt8,    detail::DataType::kInt16,
    detail::DataType::kInt32,    detail::DataType::kInt64,   detail::DataType::kUInt8,
    detail::DataType::kBool};

/// Runs `check` with each instruction set that this processor supports and, last, the scalar loop.
inline void for_each_target(const std::function<void()>& check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

/// The element at index `i` of a buffer.
template <class T>
T element(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Rounds to the nearest of the two neighbours, ties to even, in double precision.
inline std::uint16_t float_to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const auto towards_zero = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  if (std::isinf(value)) return towards_zero;
  const auto away = static_cast<std::uint16_t>(towards_zero + 1);
  const double low = std::abs(double{bfloat16_to_float(towards_zero)});
  // Infinity takes the place of the next power of two.
  const double high =
      (away & 0x7FFF) == 0x7F80 ? std::ldexp(1.0, 128) : std::abs(double{bfloat16_to_float(away)});
  const double middle = (low + high) / 2;
  const double magnitude = std::abs(double{value});
  if (magnitude != middle) return magnitude < middle ? towards_zero : away;
  return towards_zero % 2 == 0 ? towards_zero : away;
}

/// A float16.
struct Half {
  std::uint16_t bits;
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
  static Half from(float value) {
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
  }
};

/// A bfloat16.
struct BHalf {
  std::uint16_t bits;
  operator float() const { return bfloat16_to_float(bits); }
  static BHalf from(float value) { return {float_to_bfloat16(value)}; }
};

/// Stores `value`, rounded to the floating-point type, at index `i` of a buffer.
inline void set_value(std::byte* data, std::size_t i, detail::DataType type, double value) {
  const auto put = [&](auto stored) {
    std::memcpy(data + i * sizeof(stored), &stored, sizeof(stored));
  };
  switch (type) {
    case detail::DataType::kFloat32:
      return put(static_cast<float>(value));
    case detail::DataType::kFloat64:
      return put(value);
    case detail::DataType::kFloat16:
      return put(Half::from(static_cast<float>(value)));
    case detail::DataType::kBFloat16:
      return put(BHalf::from(static_cast<float>(value)));
    default:
      FAIL() << detail::data_type_name(type);
  }
}

/// Values that the type can represent: mostly between -2 and 2, including zeros, infinities, NaNs,
/// denormals and extreme values.
inline Bytes random_values(std::size_t count, detail::DataType type, std::mt19937_64& random) {
  Bytes bytes(count * detail::element_size(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if (!detail::is_floating_point(type)) {
    // With random bits alone, every "or" would be true.
    if (type == detail::DataType::kBool) {
      for (std::byte& byte : bytes) byte &= static_cast<std::byte>(random() % 2 * random());
    }
    return bytes;
  }
  constexpr double kSpecial[] = {0.0,  -0.0,  INFINITY, -INFINITY, NAN, 65504, -65504,
                                 3e38, 1e-45, 6e-8,     -1e-41,    1.0, 1e308, 5e-324};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t choice = random() % 10;
    if (choice == 0) set_value(bytes.data(), i, type, kSpecial[random() % std::size(kSpecial)]);
    if (choice > 2)
      set_value(bytes.data(), i, type, static_cast<double>(random() % 4000001) / 1e6 - 2);
  }
  return bytes;
}

/// A copy that begins at `offset` from an aligned address and ends at the end of its allocation.
class Buffer {
 public:
  Buffer(const Bytes& bytes, std::size_t offset)
      : memory_(offset, std::byte{0xA5}), offset_(offset) {
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
    memory_.shrink_to_fit();
  }
  std::byte* data() { return memory_.data() + offset_; }
  bool intact() const {
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(offset_),
                       [](std::byte byte) { return byte == std::byte{0xA5}; });
  }

 private:
  Bytes memory_;
  std::size_t offset_;
};

}  // namespace lockstep::testing_support
