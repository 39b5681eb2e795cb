// Loads and stores of the element types of reductions. Compiled once per instruction set as part of
// the source file that includes it, so the include guard toggles for each instruction set.
#if defined(LOCKSTEP_COMM_REDUCE_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_COMM_REDUCE_ELEMENTS_INL_H
#undef LOCKSTEP_COMM_REDUCE_ELEMENTS_INL_H
#else
#define LOCKSTEP_COMM_REDUCE_ELEMENTS_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// An element type defines how its values are loaded into the vector lanes in which they are
// combined, and how results are stored. Pointers need no alignment.
template <class T>
struct Plain {
  using Stored = T;
  using Lane = T;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    if constexpr (hn::MaxLanes(D()) == 1) {
      // Highway loads a single lane as a T, which has to be aligned.
      T value;
      std::memcpy(&value, from, sizeof(T));
      return hn::Set(tag, value);
    } else {
      return hn::LoadU(tag, reinterpret_cast<const T*>(from));
    }
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    if constexpr (hn::MaxLanes(D()) == 1) {
      const T lane = hn::GetLane(value);
      std::memcpy(to, &lane, sizeof(T));
    } else {
      hn::StoreU(value, tag, reinterpret_cast<T*>(to));
    }
  }
};

// No instruction set multiplies bytes, so bytes are multiplied in 16-bit lanes.
struct WidenedByte {
  using Stored = std::uint8_t;
  using Lane = std::uint16_t;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    const hn::Rebind<Stored, D> narrow;
    return hn::PromoteTo(tag, Plain<Stored>::load(narrow, from));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    const hn::Rebind<Stored, D> narrow;
    // DemoteTo() saturates. Clearing the upper bits first makes the result wrap around.
    const auto low = hn::BitCast(hn::RebindToSigned<D>(), hn::And(value, hn::Set(tag, 0xFF)));
    Plain<Stored>::store(narrow, hn::DemoteTo(narrow, low), to);
  }
};

struct Bool {
  using Stored = std::uint8_t;
  using Lane = std::uint8_t;
  // Every byte other than 0 counts as true, as in C++.
  template <class D>
  static auto load(D tag, const std::byte* from) {
    return hn::Min(Plain<Lane>::load(tag, from), hn::Set(tag, 1));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    Plain<Lane>::store(tag, value, to);
  }
};

// Both 16-bit float types are converted through 32-bit lanes. A lane that holds a 16-bit float has
// zeros in its upper 16 bits.
template <class D>
auto load_half_bits(D tag, const std::byte* from) {
  const hn::Rebind<std::uint16_t, D> narrow;
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), Plain<std::uint16_t>::load(narrow, from));
}

template <class D, class V>
void store_half_bits(D tag, V bits, std::byte* to) {
  const hn::Rebind<std::uint16_t, D> narrow;
  const hn::RebindToSigned<D> int_tag;
  Plain<std::uint16_t>::store(narrow, hn::DemoteTo(narrow, hn::BitCast(int_tag, bits)), to);
}

struct BFloat16 {
  using Stored = std::uint16_t;
  using Lane = float;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    return hn::BitCast(tag, hn::ShiftLeft<16>(load_half_bits(tag, from)));
  }
  // Highway's own conversion truncates; PyTorch rounds to nearest, ties to even, and has one NaN.
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    const hn::RebindToUnsigned<D> bits_tag;
    const auto bits = hn::BitCast(bits_tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFF))));
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(value));
    store_half_bits(tag, hn::IfThenElse(is_nan, hn::Set(bits_tag, 0x7FC0), rounded), to);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET < HWY_SSE4 && !defined(HWY_DISABLE_F16C)
// Uses the processor's conversions, which round to nearest, ties to even. (Smaller values of
// HWY_TARGET are more capable instruction sets.)
struct Float16 {
  using Stored = std::uint16_t;
  using Lane = float;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    const hn::Rebind<Stored, D> narrow;
    const hn::Rebind<hwy::float16_t, D> half_tag;
    return hn::PromoteTo(tag, hn::BitCast(half_tag, Plain<Stored>::load(narrow, from)));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    const hn::Rebind<Stored, D> narrow;
    const hn::Rebind<hwy::float16_t, D> half_tag;
    Plain<Stored>::store(narrow, hn::BitCast(narrow, hn::DemoteTo(half_tag, value)), to);
  }
};
#else
// On these targets, Highway's conversions truncate and support neither infinity nor NaN.
struct Float16 {
  using Stored = std::uint16_t;
  using Lane = float;

  static constexpr std::uint32_t exponent(int value) {
    return static_cast<std::uint32_t>(value + 127) << 23;
  }

  template <class D>
  static auto load(D tag, const std::byte* from) {
    const hn::RebindToUnsigned<D> bits_tag;
    const auto half = load_half_bits(tag, from);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(bits_tag, 0x8000)));
    const auto shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(bits_tag, 0x7FFF)));
    // The exponent of a half has a bias of 15, that of a float a bias of 127. Infinity and NaN have
    // the exponent 31 in a half and 255 in a float.
    const auto number = hn::Add(shifted, hn::Set(bits_tag, (127 - 15) << 23));
    const auto special = hn::Or(shifted, hn::Set(bits_tag, 255u << 23));
    // With exponent 0, the mantissa counts units of 2^-24 and has no implicit 1. Add an implicit 1,
    // then subtract it as a float.
    const auto one = hn::Set(bits_tag, exponent(-14));
    const auto denormal = hn::BitCast(
        bits_tag, hn::Sub(hn::BitCast(tag, hn::Or(shifted, one)), hn::BitCast(tag, one)));
    const auto is_special = hn::Gt(shifted, hn::Set(bits_tag, (31u << 23) - 1));
    const auto is_denormal = hn::Lt(shifted, hn::Set(bits_tag, 1u << 23));
    const auto bits =
        hn::IfThenElse(is_special, special, hn::IfThenElse(is_denormal, denormal, number));
    return hn::BitCast(tag, hn::Or(bits, sign));
  }

  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    const hn::RebindToUnsigned<D> bits_tag;
    const auto signed_bits = hn::BitCast(bits_tag, value);
    const auto sign = hn::And(hn::ShiftRight<16>(signed_bits), hn::Set(bits_tag, 0x8000));
    const auto bits = hn::And(signed_bits, hn::Set(bits_tag, 0x7FFFFFFF));
    // Round by adding half a unit in the last place of the result, minus one if that place is even.
    // A carry into the exponent gives the correct result, up to infinity.
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(bits_tag, 1));
    const auto rebased = hn::Sub(bits, hn::Set(bits_tag, (127u - 15) << 23));
    const auto number =
        hn::ShiftRight<13>(hn::Add(hn::Add(rebased, odd), hn::Set(bits_tag, 0xFFF)));
    // Below 2^-14 the unit is 2^-24, which is also the unit of floats in [1/2, 1). Adding 1/2
    // therefore rounds to it.
    const auto half = hn::Set(bits_tag, exponent(-1));
    const auto denormal = hn::Sub(
        hn::BitCast(bits_tag, hn::Add(hn::BitCast(tag, bits), hn::BitCast(tag, half))), half);
    const auto nan = hn::And(hn::Or(hn::ShiftRight<13>(bits), hn::Set(bits_tag, 0x7E00)),
                             hn::Set(bits_tag, 0x7FFF));
    const auto infinity = hn::Set(bits_tag, 0x7C00);
    auto result = hn::IfThenElse(hn::Lt(bits, hn::Set(bits_tag, exponent(-14))), denormal, number);
    result = hn::IfThenElse(hn::Gt(bits, hn::Set(bits_tag, exponent(16) - 1)), infinity, result);
    result = hn::IfThenElse(hn::Gt(bits, hn::Set(bits_tag, 255u << 23)), nan, result);
    store_half_bits(tag, hn::Or(result, sign), to);
  }
};
#endif

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_COMM_REDUCE_ELEMENTS_INL_H
