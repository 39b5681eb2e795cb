#include <lockstep/parallel/ddp/bucket_assignment.h>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

struct BucketCase {
  const char* name;
  std::vector<std::int64_t> elements;  // float32, 4 bytes each
  detail::BucketCaps caps;
  Buckets expected;
};

class BucketAssignment : public testing::TestWithParam<BucketCase> {};

TEST_P(BucketAssignment, FillsInReverseOrderOfRegistration) {
  std::vector<torch::Tensor> parameters;
  for (std::int64_t n : GetParam().elements) parameters.push_back(torch::empty({n}));
  EXPECT_EQ(
      detail::assign_buckets(parameters, detail::reverse_order(parameters.size()), GetParam().caps),
      GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BucketAssignment,
    testing::Values(
        BucketCase{"none", {}, {8, 16}, {}},
        BucketCase{"one_larger_than_the_cap", {100}, {8, 16}, {{0}}},
        BucketCase{"first_is_small", {1, 1, 1, 1, 1, 1, 1}, {8, 16}, {{6, 5}, {4, 3, 2, 1}, {0}}},
        BucketCase{"a_tensor_is_never_split", {2, 100, 2}, {4, 16}, {{2}, {1}, {0}}},
        BucketCase{"empty_tensors_ride_along", {1, 0, 1}, {4, 8}, {{2}, {1, 0}}}),
    [](const auto& info) { return info.param.name; });

TEST(BucketAssignment, KeepsTypesApart) {
  const std::vector<torch::Tensor> parameters = {
      torch::empty({4}), torch::empty({4}, torch::kFloat64), torch::empty({4}),
      torch::empty({4}, torch::kFloat64)};
  EXPECT_EQ(detail::assign_buckets(parameters, {3, 2, 1, 0}, {1000, 1000}),
            (Buckets{{3, 1}, {2, 0}}));
}

// The small cap is for the bucket that is reduced first, whatever its type.
TEST(BucketAssignment, OnlyTheFirstBucketOfAllIsSmall) {
  const std::vector<torch::Tensor> parameters = {
      torch::empty({4}), torch::empty({4}, torch::kFloat64), torch::empty({4}),
      torch::empty({4}, torch::kFloat64)};
  EXPECT_EQ(detail::assign_buckets(parameters, {3, 2, 1, 0}, {16, 64}),
            (Buckets{{3}, {2, 0}, {1}}));
  EXPECT_EQ(detail::assign_buckets(parameters, {2, 3, 0, 1}, {17, 64}), (Buckets{{2, 0}, {3, 1}}));
}

TEST(BucketAssignment, FollowsTheOrderOfArrival) {
  const std::vector<torch::Tensor> parameters(5, torch::empty({1}));
  EXPECT_EQ(detail::assign_buckets(parameters, {2, 0, 4, 1, 3}, {4, 8}),
            (Buckets{{2}, {0, 4}, {1, 3}}));
}

TEST(BucketAssignment, GivesSparseGradientsBucketsOfTheirOwn) {
  const std::vector<torch::Tensor> parameters(4, torch::empty({1}));
  EXPECT_EQ(
      detail::assign_buckets(parameters, {3, 2, 1, 0}, {1000, 1000}, {false, false, true, false}),
      (Buckets{{3, 1, 0}, {2}}));
}

// The caps of torch's DistributedDataParallel, in bytes and in MiB.
TEST(BucketAssignment, HasTorchsCaps) {
  const detail::ReducerOptions internal;
  EXPECT_EQ(internal.caps.first_bytes, 1048576U);
  EXPECT_EQ(internal.caps.bytes, 26214400U);
  const DdpOptions options;
  EXPECT_EQ(options.first_bucket_cap_mb, 1);
  EXPECT_EQ(options.bucket_cap_mb, 25);
}

// Each gradient begins at a multiple of 64 bytes, and each rank's slice does, too.
TEST(BucketMemory, HasWholeCacheLinesForEachGradientAndRank) {
  struct Case {
    torch::ScalarType type;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> offsets;
    std::vector<std::int64_t> elements;  // with 1, 2 and 3 ranks
  };
  const Case cases[] = {{torch::kFloat32, {16}, {0}, {16, 32, 48}},
                        {torch::kFloat32, {32}, {0}, {32, 32, 48}},
                        {torch::kFloat32, {17}, {0}, {32, 32, 48}},
                        {torch::kFloat32, {1, 16, 15}, {0, 16, 32}, {48, 64, 48}},
                        {torch::kFloat32, {0}, {0}, {16, 32, 48}},
                        {torch::kFloat32, {3, 0, 90, 5}, {0, 16, 16, 112}, {128, 128, 144}},
                        {torch::kFloat64, {8, 9}, {0, 8}, {24, 32, 24}},
                        {torch::kFloat16, {33, 1}, {0, 64}, {96, 128, 96}}};
  for (const int ranks : {1, 2, 3}) {
    const auto errors =
        testing_support::run_group(ranks, ranks == 1 ? "auto" : "shm", [&](ProcessGroup group) {
          for (const Case& c : cases) {
            std::vector<detail::NamedParameter> members;
            for (const std::int64_t size : c.sizes) {
              members.push_back({.name = "p", .tensor = torch::ones({size}, c.type)});
            }
            const GradBucket bucket = detail::make_bucket(members, group, ParameterMemory::kAsIs);
            EXPECT_EQ(bucket.buffer.numel(), c.elements[static_cast<std::size_t>(ranks) - 1])
                << torch::IntArrayRef(c.sizes) << " with " << ranks << " ranks";
            EXPECT_EQ(bucket.buffer.scalar_type(), c.type);
            EXPECT_EQ(bucket.buffer.count_nonzero().item<std::int64_t>(), 0);
            EXPECT_FALSE(bucket.flat_parameters.defined());
            ASSERT_EQ(bucket.gradients.size(), c.sizes.size());
            for (std::size_t i = 0; i < c.sizes.size(); ++i) {
              EXPECT_TRUE(bucket.parameters[i].is_same(members[i].tensor));
              EXPECT_EQ(bucket.gradients[i].numel(), c.sizes[i]);
              EXPECT_EQ(bucket.gradients[i].storage_offset() - bucket.buffer.storage_offset(),
                        c.offsets[i])
                  << torch::IntArrayRef(c.sizes) << ", gradient " << i;
            }
          }
          group.barrier();
        });
    EXPECT_EQ(errors, testing_support::no_errors(ranks));
  }
}

// Autograd and the optimizer then traverse both in the same order. Module::zero_grad() may detach
// them in place.
TEST(BucketMemory, GivesGradientsTheStridesOfTheirParameters) {
  ProcessGroup group = init_process_group({.environment = WorkerEnvironment{}});
  const torch::Tensor transposed = torch::ones({2, 3}).t();
  const torch::Tensor gaps = torch::ones({4, 4}).narrow(1, 0, 3);
  const GradBucket bucket = detail::make_bucket({{"transposed", transposed}, {"gaps", gaps}}, group,
                                                ParameterMemory::kAsIs);
  EXPECT_EQ(bucket.gradients.at(0).sizes(), transposed.sizes());
  EXPECT_EQ(bucket.gradients.at(0).strides(), transposed.strides());
  EXPECT_EQ(bucket.gradients.at(1).sizes(), gaps.sizes());
  EXPECT_TRUE(bucket.gradients.at(1).is_contiguous());
  for (const torch::Tensor& gradient : bucket.gradients) EXPECT_NO_THROW(gradient.detach_());
}

TEST(BucketMemory, LeavesParametersWhereTheirOwnerHasMovedThem) {
  ProcessGroup group = init_process_group({.environment = WorkerEnvironment{}});
  torch::Tensor moved = torch::ones({3});
  const torch::Tensor kept = torch::arange(6.0).view({2, 3}).t();
  GradBucket bucket =
      detail::make_bucket({{"moved", moved}, {"kept", kept}}, group, ParameterMemory::kShared);
  detail::move_parameters(bucket, group, ParameterMemory::kShared);
  EXPECT_TRUE(moved.is_alias_of(bucket.flat_parameters));
  EXPECT_TRUE(kept.is_alias_of(bucket.flat_parameters));
  moved.set_data(torch::full({3}, 7.0F));
  const void* const place = moved.const_data_ptr();
  detail::leave_shared_memory(bucket);
  EXPECT_EQ(moved.const_data_ptr(), place);
  EXPECT_TRUE(moved.equal(torch::full({3}, 7.0F)));
  EXPECT_FALSE(kept.is_alias_of(bucket.flat_parameters));
  EXPECT_TRUE(kept.equal(torch::arange(6.0).view({2, 3}).t()));
  EXPECT_EQ(kept.strides(), torch::IntArrayRef({1, 3}));
}

}  // namespace
}  // namespace lockstep
