#include <lockstep/data/loader/tensor_memory.h>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <torch/types.h>

namespace lockstep::testing_support {
namespace {

TEST(TensorMemory, IsReusedByBatchesThatFit) {
  torch::Tensor memory;
  const torch::TensorOptions floats = torch::dtype(torch::kFloat32);
  const torch::Tensor first = data::reuse(memory, {4, 3}, {3, 1}, floats);
  EXPECT_EQ(first.sizes(), (std::vector<std::int64_t>{4, 3}));
  const void* const at = first.const_data_ptr();
  for (const std::int64_t samples : {4, 1, 0, 3}) {
    const torch::Tensor next = data::reuse(memory, {samples, 3}, {3, 1}, floats);
    EXPECT_EQ(next.sizes(), (std::vector<std::int64_t>{samples, 3}));
    EXPECT_EQ(next.strides(), (std::vector<std::int64_t>{3, 1}));
    EXPECT_EQ(memory.const_data_ptr(), at) << samples;
  }
}

TEST(TensorMemory, IsReplacedForOtherTensors) {
  const torch::TensorOptions floats = torch::dtype(torch::kFloat32);
  const torch::TensorOptions numbers = torch::dtype(torch::kInt64);
  struct Case {
    std::vector<std::int64_t> sizes, strides;
    torch::TensorOptions options;
  };
  for (const Case& c :
       {Case{{5, 3}, {3, 1}, floats}, Case{{4, 3}, {3, 1}, numbers}, Case{{4, 3}, {1, 4}, floats},
        Case{{4, 2}, {2, 1}, floats}, Case{{4, 2}, {3, 1}, floats}, Case{{}, {}, floats}}) {
    torch::Tensor memory = torch::zeros({4, 3}, floats);
    const torch::Tensor kept = memory;
    const torch::Tensor other = data::reuse(memory, c.sizes, c.strides, c.options);
    EXPECT_EQ(other.sizes(), c.sizes);
    EXPECT_EQ(other.strides(), c.strides);
    EXPECT_EQ(other.dtype(), c.options.dtype());
    EXPECT_FALSE(memory.is_same(kept)) << torch::IntArrayRef(c.sizes);
  }
}

TEST(TensorMemory, HoldsCopiesInTheirLayout) {
  torch::Tensor memory;
  EXPECT_FALSE(data::copy_reusing(memory, torch::Tensor(), {}).defined());
  EXPECT_FALSE(memory.defined());

  const torch::Tensor images = torch::arange(48, torch::kFloat32)
                                   .view({2, 3, 2, 4})
                                   .contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor copy = data::copy_reusing(memory, images, images.options());
  EXPECT_TRUE(copy.equal(images));
  EXPECT_EQ(copy.strides(), images.strides());
  EXPECT_NE(copy.const_data_ptr(), images.const_data_ptr());
  EXPECT_EQ(copy.const_data_ptr(), memory.const_data_ptr());

  // Neither an expanded tensor nor one with gaps has memory of this layout.
  for (const torch::Tensor& from :
       {torch::arange(3).expand({4, 3}), torch::arange(24).view({4, 6}).slice(1, 0, 3)}) {
    torch::Tensor dense;
    const torch::Tensor written = data::copy_reusing(dense, from, from.options());
    EXPECT_TRUE(written.equal(from));
    EXPECT_TRUE(written.is_contiguous());
    dense.add_(1);
    EXPECT_EQ(from[0][0].item<std::int64_t>(), 0);
  }

  torch::Tensor unused;
  const torch::Tensor sparse = torch::eye(3).to_sparse();
  EXPECT_TRUE(data::copy_reusing(unused, sparse, sparse.options()).is_sparse());
  EXPECT_FALSE(unused.defined());
}

TEST(TensorMemory, HoldsTheValuesOfLazyTensors) {
  const torch::Tensor parts = torch::arange(12, torch::kFloat32).view({2, 3, 2});
  const torch::Tensor numbers = torch::view_as_complex(parts);
  for (const torch::Tensor& from :
       {numbers.conj(), numbers.conj().t(), torch::imag(numbers.conj())}) {
    ASSERT_TRUE(from.is_conj() || from.is_neg());
    torch::Tensor memory;
    const torch::Tensor written = data::copy_reusing(memory, from, from.options());
    EXPECT_FALSE(written.is_conj() || written.is_neg());
    EXPECT_TRUE(written.equal(from.resolve_conj().resolve_neg()));
  }
}

TEST(TensorMemory, IsReusedByNumbersWithoutDimensions) {
  torch::Tensor memory;
  const torch::TensorOptions floats = torch::dtype(torch::kFloat32);
  const torch::Tensor first = data::copy_reusing(memory, torch::scalar_tensor(3.0), floats);
  EXPECT_EQ(first.dim(), 0);
  const void* const at = first.const_data_ptr();
  const torch::Tensor second = data::copy_reusing(memory, torch::scalar_tensor(4.0), floats);
  EXPECT_EQ(second.const_data_ptr(), at);
  EXPECT_EQ(second.item<float>(), 4);
}

}  // namespace
}  // namespace lockstep::testing_support
