#include <lockstep/train/checkpoints/tensor_snapshot.h>

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <lockstep/train/checkpoints/tensor_types.h>

namespace lockstep::train {
namespace {

// Tensors of every kind that a training state may contain.
StateDict different_tensors(double factor) {
  const torch::Tensor wide = torch::arange(3 * 4 * 5 * 6, torch::kFloat32).mul(factor);
  return {{"rows", wide.view({3, 4, 30}).clone()},
          {"channels_last", wide.view({3, 4, 5, 6}).contiguous(torch::MemoryFormat::ChannelsLast)},
          {"with_holes", wide.view({12, 30}).slice(1, 0, 30, 7)},
          {"transposed", wide.view({12, 30}).t()},
          {"half", wide.to(torch::kHalf)},
          {"count", torch::tensor(static_cast<std::int64_t>(7 * factor))},
          {"flag", torch::tensor(true)},
          // Their memory holds other values.
          {"negative", at::_neg_view(wide.clone())},
          {"conjugate", torch::complex(wide, wide + 1).conj()},
          {"nothing", torch::empty({0, 3})},
          // More than one thread's minimum, so that several threads share the copy.
          {"large", torch::arange(1'500'001, torch::kFloat64).mul(factor)}};
}

void expect_equal_copies(const StateDict& copies, const StateDict& originals) {
  ASSERT_EQ(copies.size(), originals.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const auto& [name, copy] = copies[i];
    EXPECT_EQ(name, originals[i].first);
    EXPECT_EQ(copy.scalar_type(), originals[i].second.scalar_type()) << name;
    EXPECT_TRUE(copy.equal(originals[i].second.resolve_conj().resolve_neg())) << name;
  }
}

TEST(TensorSnapshot, CopiesEveryKindOfTensor) {
  TensorSnapshot snapshot;
  const StateDict originals = different_tensors(1);
  const StateDict copies = snapshot.take(originals);
  expect_equal_copies(copies, originals);
  EXPECT_EQ(copies[1].second.strides(), originals[1].second.strides());
  EXPECT_TRUE(copies[2].second.is_contiguous());
}

TEST(TensorSnapshot, HoldsWhatTheTensorsWere) {
  TensorSnapshot snapshot;
  const StateDict originals = different_tensors(1);
  const StateDict copies = snapshot.take(originals);
  const StateDict before = different_tensors(1);
  for (const auto& [name, tensor] : originals) tensor.zero_();
  expect_equal_copies(copies, before);
}

// In rows, and every second row and column of a larger tensor. Equal bits are equal values.
TEST(TensorSnapshot, CopiesEveryTypeThatAFileCanHold) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<torch::ScalarType>(i);
    if (dtype_of(type).empty()) continue;
    const torch::Tensor bits = torch::arange(192, torch::kUInt8);
    const torch::Tensor whole =
        (type == torch::kBool ? bits.remainder(2) : bits).view(type).view({4, -1});
    const torch::Tensor holes = whole.slice(0, 0, 4, 2).slice(1, 0, whole.size(1), 2);
    TensorSnapshot snapshot;
    const StateDict copies = snapshot.take({{"whole", whole}, {"holes", holes}});
    for (const auto& [copy, original] :
         {std::pair(copies.at(0).second, whole), std::pair(copies.at(1).second, holes)}) {
      EXPECT_EQ(copy.scalar_type(), type);
      EXPECT_EQ(copy.sizes(), original.sizes()) << type;
      EXPECT_TRUE(
          copy.contiguous().view(torch::kUInt8).equal(original.contiguous().view(torch::kUInt8)))
          << type;
    }
  }
}

TEST(TensorSnapshot, MayHoldNothing) {
  TensorSnapshot snapshot;
  EXPECT_TRUE(snapshot.take({}).empty());
  const StateDict empty = {{"none", torch::empty({0})}, {"wide", torch::empty({3, 0, 2})}};
  expect_equal_copies(snapshot.take(empty), empty);
  const StateDict number = {{"number", torch::tensor(2.5)}};
  expect_equal_copies(snapshot.take(number), number);
  EXPECT_TRUE(snapshot.take({}).empty()) << "after a larger state";
}

TEST(TensorSnapshot, UsesItsMemoryAgain) {
  TensorSnapshot snapshot;
  const void* const first = snapshot.take(different_tensors(1)).front().second.const_data_ptr();
  const StateDict originals = different_tensors(2);
  const StateDict copies = snapshot.take(originals);
  expect_equal_copies(copies, originals);
  EXPECT_EQ(copies.front().second.const_data_ptr(), first);
  // A smaller state reuses the memory, a larger one needs more.
  const StateDict few = {originals[0]};
  EXPECT_EQ(snapshot.take(few).front().second.const_data_ptr(), first);
  const StateDict more = {{"more", torch::ones({2'000'000}, torch::kFloat64)}};
  expect_equal_copies(snapshot.take(more), more);
}

// Each copy begins at a cache line.
TEST(TensorSnapshot, KnowsHowManyBytesItNeeds) {
  EXPECT_EQ(TensorSnapshot::bytes_of({}), 0);
  EXPECT_EQ(TensorSnapshot::bytes_of({{"a", torch::zeros({3}, torch::kUInt8)},
                                      {"b", torch::zeros({0, 3})},
                                      {"c", torch::zeros({16})},
                                      {"d", torch::zeros({65}, torch::kUInt8)}}),
            64 + 0 + 64 + 128);
}

TEST(TensorSnapshot, TakesTensorsOfAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  StateDict originals = different_tensors(1);
  StateDict on_gpu;
  for (const auto& [name, tensor] : originals) on_gpu.emplace_back(name, tensor.cuda());
  on_gpu.emplace_back("here", torch::ones({5}));
  originals.emplace_back("here", torch::ones({5}));
  TensorSnapshot snapshot;
  expect_equal_copies(snapshot.take(on_gpu), originals);
}

}  // namespace
}  // namespace lockstep::train
