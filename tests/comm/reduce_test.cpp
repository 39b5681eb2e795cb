#include <lockstep/comm/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/elements.h>

namespace lockstep::comm {
namespace {

using testing_support::BHalf;
using testing_support::Buffer;
using testing_support::Bytes;
using testing_support::element;
using testing_support::for_each_target;
using testing_support::Half;
using testing_support::kTypes;
using testing_support::random_values;
using testing_support::set_value;
using Kind = ReduceOp::Kind;

constexpr double kFactor = 0.3;
constexpr ReduceOp kOps[] = {
    ReduceOp::kSum,       ReduceOp::kAverage,    ReduceOp::kProduct,
    ReduceOp::kMin,       ReduceOp::kMax,        ReduceOp::kBitwiseAnd,
    ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(kFactor)};

// The reference: one element at a time, with the types and conversions of elements.h.

template <class F>
F combine_floats(Kind kind, F a, F b) {
  switch (kind) {
    case Kind::kProduct:
      return a * b;
    case Kind::kMin:
      return std::isnan(a) || std::isnan(b) ? std::numeric_limits<F>::quiet_NaN() : b < a ? b : a;
    case Kind::kMax:
      return std::isnan(a) || std::isnan(b) ? std::numeric_limits<F>::quiet_NaN() : b > a ? b : a;
    default:
      return a + b;
  }
}

template <class F>
F reduce_floats(ReduceOp op, const std::vector<F>& values) {
  const F factor = op.kind == Kind::kPreMultipliedSum ? static_cast<F>(op.factor) : F{1};
  F result = values[0] * factor;
  for (std::size_t s = 1; s < values.size(); ++s) {
    result = combine_floats<F>(op.kind, result, values[s] * factor);
  }
  if (op.kind == Kind::kAverage) result *= F{1} / static_cast<F>(values.size());
  return result;
}

std::int64_t combine_integers(Kind kind, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  switch (kind) {
    case Kind::kSum:
      return static_cast<std::int64_t>(x + y);
    case Kind::kProduct:
      return static_cast<std::int64_t>(x * y);
    case Kind::kMin:
      return std::min(a, b);
    case Kind::kMax:
      return std::max(a, b);
    case Kind::kBitwiseAnd:
      return a & b;
    case Kind::kBitwiseOr:
      return a | b;
    default:
      return a ^ b;
  }
}

bool combine_bools(Kind kind, bool a, bool b) {
  switch (kind) {
    case Kind::kSum:
    case Kind::kMax:
    case Kind::kBitwiseOr:
      return a || b;
    case Kind::kBitwiseXor:
      return a != b;
    default:
      return a && b;
  }
}

template <class Stored, class Value, class Combine>
void reference_of(const std::vector<Bytes>& sources, std::size_t count, Bytes& result,
                  Combine&& combine) {
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<Value> values;
    for (const Bytes& source : sources) {
      values.push_back(static_cast<Value>(element<Stored>(source.data(), i)));
    }
    const Stored stored = combine(values);
    std::memcpy(result.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <class T>
void reference_of_integers(const std::vector<Bytes>& sources, std::size_t count, ReduceOp op,
                           Bytes& result) {
  reference_of<T, std::int64_t>(sources, count, result, [&](const auto& values) {
    std::int64_t x = values[0];
    for (std::size_t s = 1; s < values.size(); ++s) x = combine_integers(op.kind, x, values[s]);
    return static_cast<T>(x);
  });
}

Bytes reference(const std::vector<Bytes>& sources, std::size_t count, detail::DataType type,
                ReduceOp op) {
  Bytes result(count * detail::element_size(type));
  switch (type) {
    case detail::DataType::kFloat32:
      reference_of<float, float>(sources, count, result,
                                 [&](const auto& values) { return reduce_floats(op, values); });
      break;
    case detail::DataType::kFloat64:
      reference_of<double, double>(sources, count, result,
                                   [&](const auto& values) { return reduce_floats(op, values); });
      break;
    case detail::DataType::kFloat16:
      reference_of<Half, float>(sources, count, result, [&](const auto& values) {
        return Half::from(reduce_floats(op, values));
      });
      break;
    case detail::DataType::kBFloat16:
      reference_of<BHalf, float>(sources, count, result, [&](const auto& values) {
        return BHalf::from(reduce_floats(op, values));
      });
      break;
    case detail::DataType::kInt8:
      reference_of_integers<std::int8_t>(sources, count, op, result);
      break;
    case detail::DataType::kInt16:
      reference_of_integers<std::int16_t>(sources, count, op, result);
      break;
    case detail::DataType::kInt32:
      reference_of_integers<std::int32_t>(sources, count, op, result);
      break;
    case detail::DataType::kInt64:
      reference_of_integers<std::int64_t>(sources, count, op, result);
      break;
    case detail::DataType::kUInt8:
      reference_of_integers<std::uint8_t>(sources, count, op, result);
      break;
    case detail::DataType::kBool:
      reference_of<std::uint8_t, bool>(sources, count, result, [&](const auto& values) {
        bool x = values[0];
        for (std::size_t s = 1; s < values.size(); ++s) x = combine_bools(op.kind, x, values[s]);
        return static_cast<std::uint8_t>(x);
      });
      break;
    case detail::DataType::kByte:
      break;
  }
  return result;
}

bool is_nan(const std::byte* data, std::size_t i, detail::DataType type) {
  switch (type) {
    case detail::DataType::kFloat32:
      return std::isnan(element<float>(data, i));
    case detail::DataType::kFloat64:
      return std::isnan(element<double>(data, i));
    case detail::DataType::kFloat16:
      return std::isnan(float{element<Half>(data, i)});
    case detail::DataType::kBFloat16:
      return std::isnan(float{element<BHalf>(data, i)});
    default:
      return false;
  }
}

// Index of the first element that differs, or count. All NaNs are equal.
std::size_t first_difference(const std::byte* got, const std::byte* expected, std::size_t count,
                             detail::DataType type) {
  const std::size_t size = detail::element_size(type);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(got + i * size, expected + i * size, size) == 0) continue;
    if (is_nan(got, i, type) && is_nan(expected, i, type)) continue;
    return i;
  }
  return count;
}

enum class Layout { kOneNew, kFirstInPlace, kAllInPlace, kFirstAndNew };

// Runs reduce() and compares every destination with `expected`.
void check_layout(const std::vector<Bytes>& sources, std::size_t count, detail::DataType type,
                  ReduceOp op, Layout layout, const Bytes& expected) {
  std::vector<Buffer> buffers;
  for (std::size_t s = 0; s < sources.size(); ++s)
    buffers.emplace_back(sources[s], (3 * s + 1) % 8);
  Buffer fresh(Bytes(count * detail::element_size(type), std::byte{0x5A}), 5);
  std::vector<const std::byte*> from;
  for (Buffer& buffer : buffers) from.push_back(buffer.data());
  std::vector<Buffer*> to;
  if (layout != Layout::kOneNew) to.push_back(&buffers[0]);
  if (layout == Layout::kAllInPlace) {
    for (std::size_t s = 1; s < buffers.size(); ++s) to.push_back(&buffers[s]);
  }
  if (layout == Layout::kOneNew || layout == Layout::kFirstAndNew) to.push_back(&fresh);
  std::vector<std::byte*> destinations;
  for (Buffer* buffer : to) destinations.push_back(buffer->data());

  reduce(from, destinations, count, type, op);

  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::size_t at = first_difference(destinations[d], expected.data(), count, type);
    ASSERT_EQ(at, count) << reduce_op_name(op.kind) << " of " << detail::data_type_name(type)
                         << ", " << sources.size() << " sources, destination " << d << " of "
                         << to.size();
    ASSERT_TRUE(to[d]->intact());
  }
  for (std::size_t s = to.size() == 1 ? 1 : to.size(); s < buffers.size(); ++s) {
    if (layout == Layout::kAllInPlace) break;
    ASSERT_TRUE(std::equal(sources[s].begin(), sources[s].end(), buffers[s].data()));
  }
}

class ReduceOfType : public testing::TestWithParam<detail::DataType> {};

TEST_P(ReduceOfType, AgreesWithTheReferenceOnEveryTarget) {
  const detail::DataType type = GetParam();
  std::mt19937_64 random(7);
  for (const ReduceOp op : kOps) {
    if (!why_not_reducible(type, op).empty()) continue;
    for (const std::size_t count : {0, 1, 3, 17, 64, 301, 1031}) {
      for (std::size_t source_count = 1; source_count <= 9; ++source_count) {
        std::vector<Bytes> sources;
        for (std::size_t s = 0; s < source_count; ++s) {
          sources.push_back(random_values(count, type, random));
        }
        const Bytes expected = reference(sources, count, type, op);
        for_each_target([&] {
          for (const Layout layout : {Layout::kOneNew, Layout::kFirstInPlace, Layout::kAllInPlace,
                                      Layout::kFirstAndNew}) {
            check_layout(sources, count, type, op, layout, expected);
          }
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceOfType, testing::ValuesIn(kTypes), [](const auto& info) {
  return std::string(detail::data_type_name(info.param));
});

// All 65,536 float16 values, through conversions that round up, down, to even, to denormals and to
// infinity.
TEST(Reduce, RoundsEveryHalfAsTheReferenceDoes) {
  for (const detail::DataType type : {detail::DataType::kFloat16, detail::DataType::kBFloat16}) {
    Bytes all(65536 * 2);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      std::memcpy(all.data() + 2 * bits, &half, 2);
    }
    for (const double factor :
         {1.0, 0.5, 0.25, -0.75, 1.0 / 3, 1e-3, 1.5, 1000.0, 0x1p-20, 0x1p-120}) {
      const ReduceOp op = ReduceOp::premultiplied_sum(factor);
      const Bytes expected = reference({all}, 65536, type, op);
      for_each_target([&] {
        Bytes scaled = all;
        scale(scaled.data(), 65536, type, factor);
        EXPECT_EQ(first_difference(scaled.data(), expected.data(), 65536, type), 65536)
            << detail::data_type_name(type) << " times " << factor;
      });
    }
  }
}

struct Case {
  detail::DataType type;
  ReduceOp op;
  std::vector<double> values;
  double expected;
};

// Facts that do not depend on the reference above.
TEST(Reduce, EdgesOfFloats) {
  constexpr double kTiny16 = 0x1p-24, kTiny32 = 0x1p-149, kInf = INFINITY;
  constexpr detail::DataType f16 = detail::DataType::kFloat16, bf16 = detail::DataType::kBFloat16;
  constexpr detail::DataType f32 = detail::DataType::kFloat32, f64 = detail::DataType::kFloat64;
  const Case cases[] = {
      {f32, ReduceOp::kMin, {1, NAN}, NAN},
      {f32, ReduceOp::kMin, {NAN, 1}, NAN},
      {f64, ReduceOp::kMax, {NAN, 1, 2}, NAN},
      {f16, ReduceOp::kMax, {1, NAN, kInf}, NAN},
      {bf16, ReduceOp::kMin, {-kInf, NAN}, NAN},
      {f32, ReduceOp::kMax, {-kInf, -3}, -3},
      {f32, ReduceOp::kMin, {0.0, -0.0}, 0.0},
      {f32, ReduceOp::kMax, {-0.0, 0.0}, -0.0},
      {f32, ReduceOp::kSum, {-0.0, -0.0}, -0.0},
      {f16, ReduceOp::kSum, {-0.0}, -0.0},
      {f64, ReduceOp::kSum, {kInf, -kInf}, NAN},
      {f32, ReduceOp::kSum, {3e38, 3e38}, kInf},
      {f32, ReduceOp::kSum, {kTiny32, kTiny32}, 2 * kTiny32},
      // Sums in the order of the sources: 1 is lost when added to 1e8, unlike in another order.
      {f32, ReduceOp::kSum, {1, 1e8, -1e8}, 0},
      {f32, ReduceOp::kSum, {1e8, -1e8, 1}, 1},
      // Rounds once: if it added in float16, each 1 would be lost when added to 2048.
      {f16, ReduceOp::kSum, {2048, 1, 1}, 2050},
      {bf16, ReduceOp::kSum, {256, 1, 1}, 258},
      {f16, ReduceOp::kSum, {65504, 15}, 65504},
      {f16, ReduceOp::kSum, {65504, 16}, kInf},
      {f16, ReduceOp::kSum, {65504, 65504}, kInf},
      {f16, ReduceOp::kAverage, {65504, 65504}, 65504},
      {f16, ReduceOp::kSum, {kTiny16, kTiny16}, 2 * kTiny16},
      {f16, ReduceOp::premultiplied_sum(0.5), {kTiny16}, 0},
      {f16, ReduceOp::premultiplied_sum(0.5), {3 * kTiny16}, 2 * kTiny16},
      {f16, ReduceOp::kProduct, {-kTiny16, 0.25}, -0.0},
      {bf16, ReduceOp::kSum, {256, 1}, 256},
      {bf16, ReduceOp::kSum, {258, 1}, 260},
      {bf16, ReduceOp::kSum, {NAN, 1}, NAN},
      {f64, ReduceOp::kAverage, {1, 2, 6}, 3},
      {f32, ReduceOp::premultiplied_sum(2), {1, 2, 3}, 12},
  };
  for (const Case& entry : cases) {
    // Enough elements for whole vectors and a remainder.
    constexpr std::size_t kCount = 77;
    std::vector<Bytes> sources;
    for (const double value : entry.values) {
      sources.emplace_back(kCount * detail::element_size(entry.type));
      for (std::size_t i = 0; i < kCount; ++i)
        set_value(sources.back().data(), i, entry.type, value);
    }
    Bytes expected(kCount * detail::element_size(entry.type));
    for (std::size_t i = 0; i < kCount; ++i)
      set_value(expected.data(), i, entry.type, entry.expected);
    for_each_target(
        [&] { check_layout(sources, kCount, entry.type, entry.op, Layout::kOneNew, expected); });
  }
}

template <class T>
T reduce_pair(detail::DataType type, ReduceOp op, T a, T b) {
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&a),
                                      reinterpret_cast<const std::byte*>(&b)};
  T result{};
  std::byte* const destination = reinterpret_cast<std::byte*>(&result);
  reduce(sources, {&destination, 1}, 1, type, op);
  return result;
}

TEST(Reduce, EdgesOfIntegers) {
  constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();
  for_each_target([&] {
    EXPECT_EQ(reduce_pair<std::int8_t>(detail::DataType::kInt8, ReduceOp::kSum, 127, 1), -128);
    EXPECT_EQ(reduce_pair<std::int8_t>(detail::DataType::kInt8, ReduceOp::kProduct, -128, -1),
              -128);
    EXPECT_EQ(reduce_pair<std::int8_t>(detail::DataType::kInt8, ReduceOp::kMin, -1, 1), -1);
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kUInt8, ReduceOp::kMin, 255, 1), 1);
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kUInt8, ReduceOp::kProduct, 16, 17), 16);
    EXPECT_EQ(reduce_pair<std::int64_t>(detail::DataType::kInt64, ReduceOp::kSum, kMin64, -1),
              kMax64);
    EXPECT_EQ(reduce_pair<std::int64_t>(detail::DataType::kInt64, ReduceOp::kMax, kMin64, -1), -1);
    // A byte that is neither 0 nor 1 counts as true, and the result is 1.
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kBool, ReduceOp::kSum, 2, 1), 1);
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kBool, ReduceOp::kBitwiseXor, 2, 1), 0);
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kBool, ReduceOp::kProduct, 2, 1), 1);
    EXPECT_EQ(reduce_pair<std::uint8_t>(detail::DataType::kBool, ReduceOp::kMin, 4, 0), 0);
  });
}

TEST(Reduce, KnowsWhatIsNotDefined) {
  EXPECT_EQ(why_not_reducible(detail::DataType::kInt64, ReduceOp::kAverage),
            "the average of int64 is not defined");
  EXPECT_EQ(why_not_reducible(detail::DataType::kBool, ReduceOp::premultiplied_sum(2)),
            "the premultiplied sum of bool is not defined");
  EXPECT_EQ(why_not_reducible(detail::DataType::kBFloat16, ReduceOp::kBitwiseXor),
            "the bitwise xor of bfloat16 is not defined");
  EXPECT_EQ(why_not_reducible(detail::DataType::kByte, ReduceOp::kSum),
            "the sum of bytes is not defined");
  std::size_t defined = 0;
  for (const detail::DataType type : kTypes) {
    for (const ReduceOp op : kOps) defined += why_not_reducible(type, op).empty() ? 1 : 0;
  }
  EXPECT_EQ(defined, 4 * 6 + 6 * 7);  // no bitwise operations on floats, no averages of integers
  EXPECT_THROW(reduce_pair<std::int32_t>(detail::DataType::kInt32, ReduceOp::kAverage, 1, 2),
               InternalError);
  EXPECT_THROW(reduce({}, {}, 1, detail::DataType::kFloat32, ReduceOp::kSum), InternalError);
}

}  // namespace
}  // namespace lockstep::comm
