#include <lockstep/parallel/ddp/bucket_assignment.h>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
