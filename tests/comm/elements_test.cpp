// Operations on the elements of a buffer other than reductions: copies and the search for a NaN.
// Also the names of element types.
#include <lockstep/comm/kernels/copy.h>
#include <lockstep/comm/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include <tests/comm/elements.h>

namespace lockstep::comm {
namespace {

using testing_support::Buffer;
using testing_support::Bytes;
using testing_support::for_each_target;
using testing_support::kTypes;
using testing_support::random_values;
using testing_support::set_value;

TEST(FindNan, FindsTheFirst) {
  constexpr std::size_t kCount = 333;
  for (const detail::DataType type : {detail::DataType::kFloat32, detail::DataType::kFloat64,
                                      detail::DataType::kFloat16, detail::DataType::kBFloat16}) {
    Bytes values(kCount * detail::element_size(type));
    for (std::size_t i = 0; i < kCount; ++i) {
      set_value(values.data(), i, type, i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : -1e-3);
    }
    for_each_target([&] {
      Buffer none(values, 1);
      EXPECT_EQ(find_nan(none.data(), kCount, type), kCount) << detail::data_type_name(type);
      for (std::size_t at = 0; at < kCount; at += at < 260 ? 1 : 9) {
        Buffer buffer(values, 1);
        set_value(buffer.data(), at, type, at % 2 == 0 ? NAN : -NAN);
        set_value(buffer.data(), kCount - 1, type, NAN);
        EXPECT_EQ(find_nan(buffer.data(), kCount, type), at) << detail::data_type_name(type);
        EXPECT_EQ(find_nan(buffer.data(), at, type), at) << detail::data_type_name(type);
      }
    });
  }
  const Bytes ones(64, std::byte{0xFF});
  EXPECT_EQ(find_nan(ones.data(), 16, detail::DataType::kInt32), 16);
  EXPECT_EQ(find_nan(nullptr, 0, detail::DataType::kFloat32), 0);
}

TEST(CopyStreaming, CopiesWhateverTheAlignment) {
  std::mt19937_64 random(1);
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 300, 4096, 70001}) {
    const Bytes expected = random_values(bytes, detail::DataType::kUInt8, random);
    for_each_target([&] {
      for (const std::size_t offset : {0, 1, 16, 63}) {
        Buffer from(expected, (offset * 5) % 64);
        Buffer to(Bytes(bytes), offset);
        copy_streaming(to.data(), from.data(), bytes);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.data())) << bytes;
        EXPECT_TRUE(to.intact());
      }
    });
  }
  copy_streaming(nullptr, nullptr, 0);
}

TEST(DataTypes, HaveTheirSizesAndPyTorchsNames) {
  constexpr std::pair<const char*, std::size_t> kExpected[] = {
      {"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"int8", 1},
      {"int16", 2},   {"int32", 4},   {"int64", 8},   {"uint8", 1},    {"bool", 1}};
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    EXPECT_STREQ(detail::data_type_name(kTypes[i]), kExpected[i].first);
    EXPECT_EQ(detail::element_size(kTypes[i]), kExpected[i].second);
    EXPECT_EQ(detail::is_floating_point(kTypes[i]), i < 4);
  }
}

}  // namespace
}  // namespace lockstep::comm
