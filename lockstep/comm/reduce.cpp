#include <lockstep/comm/reduce.h>

#include <array>
#include <cstdint>
#include <type_traits>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/comm/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Sources = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

// An element type is how its values are loaded into the lanes in which they are combined, and how
// results are stored.
template <class T>
struct Plain {
  using Stored = T;
  using Lane = T;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    return hn::LoadU(tag, reinterpret_cast<const T*>(from));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    hn::StoreU(value, tag, reinterpret_cast<T*>(to));
  }
};

// No instruction set multiplies bytes, so they do it in lanes of 16 bits.
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
    // Narrowing saturates; without the upper bits it wraps.
    const auto low = hn::BitCast(hn::RebindToSigned<D>(), hn::And(value, hn::Set(tag, 0xFF)));
    Plain<Stored>::store(narrow, hn::DemoteTo(narrow, low), to);
  }
};

struct Bool {
  using Stored = std::uint8_t;
  using Lane = std::uint8_t;
  // Any other byte than 0 is true, as for C++.
  template <class D>
  static auto load(D tag, const std::byte* from) {
    return hn::Min(Plain<Lane>::load(tag, from), hn::Set(tag, 1));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    Plain<Lane>::store(tag, value, to);
  }
};

// The two halves pass through the bits of a float32 in 32-bit lanes, whose upper 16 bits are zero
// where they hold a half.
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
// The processor's conversions, which round to nearest, ties to even. A smaller target is a better
// one.
struct Float16 {
  using Stored = std::uint16_t;
  using Lane = float;
  template <class D>
  static auto load(D tag, const std::byte* from) {
    const hn::Rebind<hwy::float16_t, D> half_tag;
    return hn::PromoteTo(tag, hn::LoadU(half_tag, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  template <class D, class V>
  static void store(D tag, V value, std::byte* to) {
    const hn::Rebind<hwy::float16_t, D> half_tag;
    hn::StoreU(hn::DemoteTo(half_tag, value), half_tag, reinterpret_cast<hwy::float16_t*>(to));
  }
};
#else
// Highway's conversions truncate here and know neither infinity nor NaN.
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
    // A half's exponent is 15 too large where a float's is 127 too large; 31 stands for infinity
    // and NaN as 255 does.
    const auto number = hn::Add(shifted, hn::Set(bits_tag, (127 - 15) << 23));
    const auto special = hn::Or(shifted, hn::Set(bits_tag, 255u << 23));
    // With exponent 0 the mantissa counts units of 2^-24 and has no hidden 1: put one there, take
    // it off as a float.
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
    // Half a unit in the last place of the result, less one where that place is even. A carry into
    // the exponent is right, up to infinity.
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(bits_tag, 1));
    const auto rebased = hn::Sub(bits, hn::Set(bits_tag, (127u - 15) << 23));
    const auto number =
        hn::ShiftRight<13>(hn::Add(hn::Add(rebased, odd), hn::Set(bits_tag, 0xFFF)));
    // Below 2^-14 the unit is 2^-24, which is that of floats in [1/2, 1): adding 1/2 rounds to it.
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

// An operation prepares each value, combines them in order, and finishes the result.
struct Operation {
  template <class D, class V>
  V prepare(D, V value) const {
    return value;
  }
  template <class D, class V>
  V finish(D, V value) const {
    return value;
  }
};

struct Sum : Operation {
  template <class V>
  V combine(V a, V b) const {
    return hn::Add(a, b);
  }
};

template <class T>
struct Average : Sum {
  T inverse_count;
  template <class D, class V>
  V finish(D tag, V sum) const {
    return hn::Mul(sum, hn::Set(tag, inverse_count));
  }
};

template <class T>
struct PreMultipliedSum : Sum {
  T factor;
  template <class D, class V>
  V prepare(D tag, V value) const {
    return hn::Mul(value, hn::Set(tag, factor));
  }
};

struct Product : Operation {
  template <class V>
  V combine(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Of floats a processor's own minimum forgets NaN, and each processor has its own idea of the
// smaller zero. Here the first of equals stays.
struct Min : Operation {
  template <class V>
  V combine(V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max : Operation {
  template <class V>
  V combine(V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
    } else {
      return hn::Max(a, b);
    }
  }
};

struct BitwiseAnd : Operation {
  template <class V>
  V combine(V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitwiseOr : Operation {
  template <class V>
  V combine(V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitwiseXor : Operation {
  template <class V>
  V combine(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// One vector of each source to one vector of each destination; all loads come before all stores.
template <class Element, class Op, class D, class Froms, class Tos>
HWY_INLINE void combine_vector(D tag, const Froms& sources, const Tos& destinations,
                               std::size_t offset, Op op) {
  const auto load = [&](std::size_t s) HWY_ATTR {
    return op.prepare(tag, Element::load(tag, sources[s] + offset));
  };
  auto x = load(0);
  for (std::size_t s = 1; s < sources.size(); ++s) x = op.combine(x, load(s));
  x = op.finish(tag, x);
  for (std::byte* destination : destinations) Element::store(tag, x, destination + offset);
}

// The same for four vectors at a time, which stay in registers while the sources pass by. (Not an
// array: vectors of some instruction sets have no size.)
template <class Element, class Op, class D, class Froms, class Tos>
HWY_INLINE void combine_four(D tag, const Froms& sources, const Tos& destinations,
                             std::size_t offset, Op op) {
  const std::size_t step = hn::Lanes(tag) * sizeof(typename Element::Stored);
  const auto load = [&](std::size_t s, std::size_t i) HWY_ATTR {
    return op.prepare(tag, Element::load(tag, sources[s] + offset + i * step));
  };
  auto x0 = load(0, 0);
  auto x1 = load(0, 1);
  auto x2 = load(0, 2);
  auto x3 = load(0, 3);
  for (std::size_t s = 1; s < sources.size(); ++s) {
    x0 = op.combine(x0, load(s, 0));
    x1 = op.combine(x1, load(s, 1));
    x2 = op.combine(x2, load(s, 2));
    x3 = op.combine(x3, load(s, 3));
  }
  x0 = op.finish(tag, x0);
  x1 = op.finish(tag, x1);
  x2 = op.finish(tag, x2);
  x3 = op.finish(tag, x3);
  for (std::byte* destination : destinations) {
    Element::store(tag, x0, destination + offset);
    Element::store(tag, x1, destination + offset + step);
    Element::store(tag, x2, destination + offset + 2 * step);
    Element::store(tag, x3, destination + offset + 3 * step);
  }
}

// By value: the pointers of a std::array stay in registers.
template <class Element, class Op, class Froms, class Tos>
void combine_lists(Froms sources, Tos destinations, std::size_t count, Op op) {
  const hn::ScalableTag<typename Element::Lane> tag;
  const hn::CappedTag<typename Element::Lane, 1> single;
  const std::size_t step = hn::Lanes(tag) * sizeof(typename Element::Stored);
  const std::size_t end = count * sizeof(typename Element::Stored);
  std::size_t i = 0;
  for (; i + 4 * step <= end; i += 4 * step) {
    combine_four<Element>(tag, sources, destinations, i, op);
  }
  for (; i + step <= end; i += step) combine_vector<Element>(tag, sources, destinations, i, op);
  for (; i < end; i += sizeof(typename Element::Stored)) {
    combine_vector<Element>(single, sources, destinations, i, op);
  }
}

// Sums of floats from two ranks are by far the most frequent: as long as the data is in a cache,
// loops of known length make them a tenth to a quarter faster.
template <class Element, class Op>
void combine(Sources sources, Destinations destinations, std::size_t count, Op op) {
  if constexpr (std::is_base_of_v<Sum, Op> && hwy::IsFloat<typename Element::Lane>()) {
    if (sources.size() == 2 && destinations.size() <= 2 && !destinations.empty()) {
      const std::array two{sources[0], sources[1]};
      if (destinations.size() == 1) {
        return combine_lists<Element>(two, std::array{destinations[0]}, count, op);
      }
      return combine_lists<Element>(two, std::array{destinations[0], destinations[1]}, count, op);
    }
  }
  combine_lists<Element>(sources, destinations, count, op);
}

template <class Element>
void reduce_floats(Sources sources, Destinations destinations, std::size_t count, ReduceOp op) {
  using T = typename Element::Lane;
  switch (op.kind) {
    case ReduceOp::Kind::kSum:
      return combine<Element>(sources, destinations, count, Sum{});
    case ReduceOp::Kind::kAverage:
      return combine<Element>(sources, destinations, count,
                              Average<T>{{}, T{1} / static_cast<T>(sources.size())});
    case ReduceOp::Kind::kPreMultipliedSum:
      return combine<Element>(sources, destinations, count,
                              PreMultipliedSum<T>{{}, static_cast<T>(op.factor)});
    case ReduceOp::Kind::kProduct:
      return combine<Element>(sources, destinations, count, Product{});
    case ReduceOp::Kind::kMin:
      return combine<Element>(sources, destinations, count, Min{});
    case ReduceOp::Kind::kMax:
      return combine<Element>(sources, destinations, count, Max{});
    default:
      return;
  }
}

// Only min and max see the sign.
template <class T>
void reduce_integers(Sources sources, Destinations destinations, std::size_t count, ReduceOp op) {
  using Bits = Plain<std::make_unsigned_t<T>>;
  using Factor = std::conditional_t<sizeof(T) == 1, WidenedByte, Bits>;
  switch (op.kind) {
    case ReduceOp::Kind::kSum:
      return combine<Bits>(sources, destinations, count, Sum{});
    case ReduceOp::Kind::kProduct:
      return combine<Factor>(sources, destinations, count, Product{});
    case ReduceOp::Kind::kMin:
      return combine<Plain<T>>(sources, destinations, count, Min{});
    case ReduceOp::Kind::kMax:
      return combine<Plain<T>>(sources, destinations, count, Max{});
    case ReduceOp::Kind::kBitwiseAnd:
      return combine<Bits>(sources, destinations, count, BitwiseAnd{});
    case ReduceOp::Kind::kBitwiseOr:
      return combine<Bits>(sources, destinations, count, BitwiseOr{});
    case ReduceOp::Kind::kBitwiseXor:
      return combine<Bits>(sources, destinations, count, BitwiseXor{});
    default:
      return;
  }
}

void reduce_bools(Sources sources, Destinations destinations, std::size_t count, ReduceOp op) {
  switch (op.kind) {
    case ReduceOp::Kind::kSum:
    case ReduceOp::Kind::kMax:
    case ReduceOp::Kind::kBitwiseOr:
      return combine<Bool>(sources, destinations, count, BitwiseOr{});
    case ReduceOp::Kind::kProduct:
    case ReduceOp::Kind::kMin:
    case ReduceOp::Kind::kBitwiseAnd:
      return combine<Bool>(sources, destinations, count, BitwiseAnd{});
    case ReduceOp::Kind::kBitwiseXor:
      return combine<Bool>(sources, destinations, count, BitwiseXor{});
    default:
      return;
  }
}

void reduce_with_target(Sources sources, Destinations destinations, std::size_t count,
                        DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return reduce_floats<Plain<float>>(sources, destinations, count, op);
    case DataType::kFloat64:
      return reduce_floats<Plain<double>>(sources, destinations, count, op);
    case DataType::kFloat16:
      return reduce_floats<Float16>(sources, destinations, count, op);
    case DataType::kBFloat16:
      return reduce_floats<BFloat16>(sources, destinations, count, op);
    case DataType::kInt8:
      return reduce_integers<std::int8_t>(sources, destinations, count, op);
    case DataType::kInt16:
      return reduce_integers<std::int16_t>(sources, destinations, count, op);
    case DataType::kInt32:
      return reduce_integers<std::int32_t>(sources, destinations, count, op);
    case DataType::kInt64:
      return reduce_integers<std::int64_t>(sources, destinations, count, op);
    case DataType::kUInt8:
      return reduce_integers<std::uint8_t>(sources, destinations, count, op);
    case DataType::kBool:
      return reduce_bools(sources, destinations, count, op);
    case DataType::kByte:
      return;
  }
}

// A NaN is what is larger than infinity, but for the sign.
template <class T>
std::size_t find_larger(const std::byte* data, std::size_t count, T infinity) {
  const hn::ScalableTag<T> tag;
  const hn::CappedTag<T, 1> single;
  const auto is_nan = [&](auto d, std::size_t i) HWY_ATTR {
    const auto bits = Plain<T>::load(d, data + i * sizeof(T));
    return hn::Gt(hn::And(bits, hn::Set(d, hwy::LimitsMax<T>())), hn::Set(d, infinity));
  };
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto first = hn::Or(is_nan(tag, i), is_nan(tag, i + lanes));
    const auto second = hn::Or(is_nan(tag, i + 2 * lanes), is_nan(tag, i + 3 * lanes));
    if (!hn::AllFalse(tag, hn::Or(first, second))) break;
  }
  while (i < count && hn::AllFalse(single, is_nan(single, i))) ++i;
  return i;
}

std::size_t find_nan_with_target(const std::byte* data, std::size_t count, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return find_larger<std::int32_t>(data, count, 0x7F800000);
    case DataType::kFloat64:
      return find_larger<std::int64_t>(data, count, 0x7FF0000000000000);
    case DataType::kFloat16:
      return find_larger<std::int16_t>(data, count, 0x7C00);
    case DataType::kBFloat16:
      return find_larger<std::int16_t>(data, count, 0x7F80);
    default:
      return count;
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

HWY_EXPORT(reduce_with_target);
HWY_EXPORT(find_nan_with_target);

}  // namespace

std::string why_not_reducible(DataType type, ReduceOp op) {
  const auto undefined = [&] {
    return lockstep::str("the ", reduce_op_name(op.kind), " of ", data_type_name(type),
                         " is not defined");
  };
  if (type == DataType::kByte) return undefined();
  switch (op.kind) {
    case ReduceOp::Kind::kAverage:
    case ReduceOp::Kind::kPreMultipliedSum:
      return is_floating_point(type) ? "" : undefined();
    case ReduceOp::Kind::kBitwiseAnd:
    case ReduceOp::Kind::kBitwiseOr:
    case ReduceOp::Kind::kBitwiseXor:
      return is_floating_point(type) ? undefined() : "";
    default:
      return "";
  }
}

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, DataType type, ReduceOp op) {
  LOCKSTEP_CHECK(!sources.empty());
  LOCKSTEP_CHECK(why_not_reducible(type, op).empty(), why_not_reducible(type, op));
  HWY_DYNAMIC_DISPATCH(reduce_with_target)(sources, destinations, count, type, op);
}

void scale(std::byte* data, std::size_t count, DataType type, double factor) {
  const std::byte* source = data;
  reduce({&source, 1}, {&data, 1}, count, type, ReduceOp::premultiplied_sum(factor));
}

std::size_t find_nan(const std::byte* data, std::size_t count, DataType type) {
  return HWY_DYNAMIC_DISPATCH(find_nan_with_target)(data, count, type);
}

}  // namespace lockstep
#endif  // HWY_ONCE
