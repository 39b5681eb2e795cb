// The adapter's memory requests to NCCL, and its behaviour if they fail. A fake library replaces
// NCCL, so no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <tests/comm/backends/backend_oracle.h>

namespace lockstep {
namespace {

using testing_support::Caller;
using torch::Tensor;

class EndedWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
};

// Rank 1 of two ranks with equal inputs.
class MemoryLibrary final : public c10d::Backend {
 public:
  MemoryLibrary() : c10d::Backend(/*rank=*/1, /*size=*/2) {}

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions&) override {
    input_address = input.data_ptr();
    output_address = output.data_ptr();
    output.copy_(input.chunk(2)[1] * 2);
    return c10::make_intrusive<EndedWork>();
  }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long, at::TensorOptions) override {
    ++allocations;
    throw std::runtime_error("the driver knows no such memory");
  }
  void abort() override {}
  void shutdown() override {}

  void* input_address = nullptr;
  void* output_address = nullptr;
  int allocations = 0;
};

class NcclLibrary : public testing::Test {
 protected:
  NcclLibrary()
      : library_(c10::make_intrusive<MemoryLibrary>()),
        caller_(nccl::adapt(library_, c10::make_intrusive<c10d::HashStore>(),
                            {.timeout = std::chrono::seconds(30)}),
                /*rank=*/1, /*size=*/2) {}

  void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) {
    caller_.start(CallKind::kReduceScatter, input, output, op)->wait();
  }

  const c10::intrusive_ptr<MemoryLibrary> library_;
  Caller caller_;
};

// The usage of ZeRO: the input is a bucket, and the output is this rank's slice of it.
TEST_F(NcclLibrary, ReducesAndScattersInPlace) {
  const Tensor bucket = torch::arange(8, torch::kFloat32);
  const Tensor slice = bucket.narrow(0, 4, 4);
  for (const ReduceOp op : {ReduceOp(ReduceOp::kSum), ReduceOp(ReduceOp::kAverage)}) {
    bucket.copy_(torch::arange(8));
    reduce_scatter(bucket, slice, op);
    EXPECT_EQ(library_->input_address, bucket.data_ptr());
    EXPECT_EQ(library_->output_address, slice.data_ptr());
    EXPECT_TRUE(torch::equal(slice, torch::arange(4, 8) * 2.0F));
  }
}

TEST_F(NcclLibrary, ScattersTruthValuesAsTheBytesThatTheyAre) {
  const Tensor input = torch::tensor({true, false, true, false});
  const Tensor output = torch::zeros({2}, torch::kBool);
  reduce_scatter(input, output, ReduceOp::kMax);
  EXPECT_EQ(library_->input_address, input.data_ptr());
  EXPECT_EQ(library_->output_address, output.data_ptr());
}

TEST_F(NcclLibrary, KeepsTheInputOfASumWithAFactor) {
  const Tensor input = torch::arange(4, torch::kFloat32);
  const Tensor output = torch::zeros({2});
  reduce_scatter(input, output, ReduceOp::premultiplied_sum(0.5));
  EXPECT_NE(library_->input_address, input.data_ptr());
  EXPECT_TRUE(torch::equal(input, torch::arange(4, torch::kFloat32)));
  EXPECT_TRUE(torch::equal(output, torch::tensor({2.0F, 3.0F})));
}

TEST_F(NcclLibrary, TakesTensorsOfItsDeviceAndNoAlgorithmsOverMessages) {
  const BackendTraits& traits = caller_.backend->traits();
  EXPECT_EQ(traits.memory, BackendTraits::Memory::kDevice);
  EXPECT_FALSE(traits.messages_overlap);
  EXPECT_TRUE(traits.splits);
  EXPECT_FALSE(traits.completes_at_once);
}

TEST_F(NcclLibrary, UsesPlainMemoryWhereItGivesNone) {
  const Tensor tensor = caller_.backend->allocate({2, 3}, torch::kFloat32);
  EXPECT_EQ(library_->allocations, 1);
  EXPECT_TRUE(torch::equal(tensor, torch::zeros({2, 3})));
}

}  // namespace
}  // namespace lockstep
