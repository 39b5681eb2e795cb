// Which reductions an adapter leaves to a library of PyTorch, and in which form.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/comm/backends/c10d/reduction.h>
#include <lockstep/comm/call/tensor_type.h>

namespace lockstep::c10d_adapter {
namespace {

using detail::DataType;
using Kind = ReduceOp::Kind;
using LibraryOp = c10d::ReduceOp::RedOpType;

// Like Gloo and NCCL.
constexpr LibraryReductions kSumsOnly{
    .averages = false, .bitwise = true, .precise_halves = false, .scatters = false};
constexpr LibraryReductions kAverages{
    .averages = true, .bitwise = false, .precise_halves = true, .scatters = true};

constexpr std::array kAllKinds{Kind::kSum,       Kind::kAverage,    Kind::kProduct,
                               Kind::kMin,       Kind::kMax,        Kind::kBitwiseAnd,
                               Kind::kBitwiseOr, Kind::kBitwiseXor, Kind::kPreMultipliedSum};

// A letter for each operation that the library has, in the order above.
std::string supported(const LibraryReductions& library, DataType type) {
  constexpr const char* kLetters = "sa*<>&|^m";
  std::string letters;
  for (std::size_t i = 0; i < kAllKinds.size(); ++i) {
    if (library_reduces(library, type, {kAllKinds[i]})) letters += kLetters[i];
  }
  return letters;
}

TEST(LibraryReductions, AreThoseThatPropagateNanAndKnowTheType) {
  struct Row {
    DataType type;
    const char* without_averages;
    const char* with_averages;
  };
  const Row rows[] = {{DataType::kFloat32, "sa*&|^m", "sa*m"},
                      {DataType::kFloat64, "sa*&|^m", "sa*m"},
                      {DataType::kFloat16, "sa*&|^m", "sa*m"},
                      {DataType::kBFloat16, "sa*&|^m", "sa*m"},
                      {DataType::kInt8, "sa*<>&|^m", "sa*<>m"},
                      {DataType::kInt16, "", ""},
                      {DataType::kInt32, "sa*<>&|^m", "sa*<>m"},
                      {DataType::kInt64, "sa*<>&|^m", "sa*<>m"},
                      {DataType::kUInt8, "sa*<>&|^m", "sa*<>m"},
                      {DataType::kBool, "sa*<>&|^m", "sa*<>&|m"},
                      {DataType::kByte, "", ""}};
  for (const Row& row : rows) {
    EXPECT_EQ(supported(kSumsOnly, row.type), row.without_averages)
        << detail::data_type_name(row.type);
    EXPECT_EQ(supported(kAverages, row.type), row.with_averages)
        << detail::data_type_name(row.type);
  }
}

struct PreparedRow {
  const char* name;
  const LibraryReductions* library;
  torch::ScalarType type;
  ReduceOp op;
  bool in_place;
  LibraryOp library_op;
  torch::ScalarType library_type;
  bool shares;                   // the library's tensor is the caller's
  std::vector<double> prepared;  // values of the library's tensor; the caller's are 6 and 1
  std::vector<double> result;    // if the library leaves its tensor as it is; of four ranks
};

const std::vector<PreparedRow>& prepared_rows() {
  using Op = c10d::ReduceOp;
  const auto half = ReduceOp::premultiplied_sum(0.5);
  static const std::vector<PreparedRow> rows{
      {"a mean that is divided afterwards",
       &kSumsOnly,
       torch::kFloat32,
       ReduceOp::kAverage,
       true,
       Op::SUM,
       torch::kFloat32,
       true,
       {6, 1},
       {1.5, 0.25}},
      {"a mean of a copy",
       &kSumsOnly,
       torch::kFloat32,
       ReduceOp::kAverage,
       false,
       Op::SUM,
       torch::kFloat32,
       false,
       {6, 1},
       {1.5, 0.25}},
      {"a mean of the library",
       &kAverages,
       torch::kFloat32,
       ReduceOp::kAverage,
       true,
       Op::AVG,
       torch::kFloat32,
       true,
       {6, 1},
       {6, 1}},
      {"a sum of halves as floats",
       &kSumsOnly,
       torch::kBFloat16,
       ReduceOp::kSum,
       true,
       Op::SUM,
       torch::kFloat32,
       false,
       {6, 1},
       {6, 1}},
      {"a mean of halves as floats",
       &kSumsOnly,
       torch::kFloat16,
       ReduceOp::kAverage,
       true,
       Op::SUM,
       torch::kFloat32,
       false,
       {6, 1},
       {1.5, 0.25}},
      {"a sum of precise halves",
       &kAverages,
       torch::kBFloat16,
       ReduceOp::kSum,
       true,
       Op::SUM,
       torch::kBFloat16,
       true,
       {6, 1},
       {6, 1}},
      {"a sum of a copy of precise halves",
       &kAverages,
       torch::kFloat16,
       ReduceOp::kSum,
       false,
       Op::SUM,
       torch::kFloat16,
       false,
       {6, 1},
       {6, 1}},
      {"a multiplied sum",
       &kAverages,
       torch::kFloat32,
       half,
       false,
       Op::SUM,
       torch::kFloat32,
       false,
       {3, 0.5},
       {3, 0.5}},
      {"a multiplied sum of halves",
       &kSumsOnly,
       torch::kBFloat16,
       half,
       true,
       Op::SUM,
       torch::kFloat32,
       false,
       {3, 0.5},
       {3, 0.5}},
      {"a product",
       &kAverages,
       torch::kInt64,
       ReduceOp::kProduct,
       true,
       Op::PRODUCT,
       torch::kInt64,
       true,
       {6, 1},
       {6, 1}},
      {"a minimum",
       &kAverages,
       torch::kInt32,
       ReduceOp::kMin,
       true,
       Op::MIN,
       torch::kInt32,
       true,
       {6, 1},
       {6, 1}},
      {"a maximum",
       &kAverages,
       torch::kInt32,
       ReduceOp::kMax,
       true,
       Op::MAX,
       torch::kInt32,
       true,
       {6, 1},
       {6, 1}},
      {"and",
       &kSumsOnly,
       torch::kInt32,
       ReduceOp::kBitwiseAnd,
       true,
       Op::BAND,
       torch::kInt32,
       true,
       {6, 1},
       {6, 1}},
      {"or",
       &kSumsOnly,
       torch::kInt32,
       ReduceOp::kBitwiseOr,
       true,
       Op::BOR,
       torch::kInt32,
       true,
       {6, 1},
       {6, 1}},
      {"exclusive or",
       &kSumsOnly,
       torch::kInt32,
       ReduceOp::kBitwiseXor,
       true,
       Op::BXOR,
       torch::kInt32,
       true,
       {6, 1},
       {6, 1}},
      {"a sum of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kSum,
       true,
       Op::MAX,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
      {"a product of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kProduct,
       false,
       Op::MIN,
       torch::kUInt8,
       false,
       {1, 1},
       {1, 1}},
      {"and of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kBitwiseAnd,
       true,
       Op::MIN,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
      {"or of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kBitwiseOr,
       true,
       Op::MAX,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
      {"exclusive or of bools",
       &kSumsOnly,
       torch::kBool,
       ReduceOp::kBitwiseXor,
       true,
       Op::BXOR,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
      {"the least of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kMin,
       true,
       Op::MIN,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
      {"the greatest of bools",
       &kAverages,
       torch::kBool,
       ReduceOp::kMax,
       true,
       Op::MAX,
       torch::kUInt8,
       true,
       {1, 1},
       {1, 1}},
  };
  return rows;
}

std::vector<double> values_in(const torch::Tensor& tensor) {
  const auto wide = tensor.to(torch::kFloat64).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

TEST(LibraryReductions, AreMadeOfTheCallersTensorAndBecomeItsResult) {
  for (const PreparedRow& row : prepared_rows()) {
    SCOPED_TRACE(row.name);
    const auto given = torch::tensor({6, 1}).to(row.type);
    const auto before = given.clone();
    CallDescription call;
    call.kind = CallKind::kAllReduce;
    call.type = comm::data_type_of(row.type);
    call.op = row.op;
    const auto reduction = prepare(*row.library, call, given, row.in_place, /*size=*/4);
    EXPECT_EQ(static_cast<int>(reduction.op.op_), static_cast<int>(row.library_op));
    EXPECT_EQ(reduction.tensor.scalar_type(), row.library_type);
    EXPECT_EQ(reduction.tensor.const_data_ptr() == given.const_data_ptr(), row.shares);
    EXPECT_EQ(values_in(reduction.tensor), row.prepared);
    EXPECT_TRUE(given.equal(before)) << "peers may still need it";
    const auto destination = row.in_place ? given : torch::zeros({2}, row.type);
    reduction.finish(destination);
    EXPECT_EQ(values_in(destination), row.result);
    EXPECT_EQ(destination.scalar_type(), row.type);
    if (!row.in_place) {
      EXPECT_TRUE(given.equal(before));
    }
  }
}

TEST(LibraryReductions, ThatTheLibraryLacksCombineThePiecesOfAllRanks) {
  CallDescription call;
  call.kind = CallKind::kAllReduce;
  call.type = DataType::kInt16;
  const auto pieces = torch::tensor({1, 2, 10, 20, 100, 200}).to(torch::kInt16);
  const auto destination = torch::zeros({2}, torch::kInt16);
  combine(destination, pieces, /*size=*/3, call);
  EXPECT_EQ(values_in(destination), (std::vector<double>{111, 222}));
  call.op = ReduceOp::kMax;
  combine(destination, pieces, /*size=*/2, call);
  EXPECT_EQ(values_in(destination), (std::vector<double>{10, 20}));
}

}  // namespace
}  // namespace lockstep::c10d_adapter
