// The mean of sparse gradients whose ranks have different indices, or different sparse dimensions.
#include <lockstep/parallel/ddp/sparse_reduction.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep::parallel {
namespace {

using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;
using torch::Tensor;

// No rank leaves before all have the mean.
Tensor mean_of(const Tensor& gradient, ProcessGroup group) {
  const auto result = std::make_shared<Tensor>();
  async_mean_sparse(gradient, group, result)->wait();
  group.barrier();
  return *result;
}

Tensor dense_numbers(double factor) {
  return torch::arange(12, torch::kFloat32).view({4, 3}) * factor;
}

// Rows of [4, 3], of which some may be given twice, with one sparse dimension.
Tensor rows_of(const std::vector<std::int64_t>& rows, const Tensor& values) {
  return torch::sparse_coo_tensor(torch::tensor(rows, torch::kInt64).unsqueeze(0), values, {4, 3});
}

class SparseReduction : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, SparseReduction, testing::Values("shm", "gloo"));

TEST_P(SparseReduction, AddsUpRowsThatAreGivenTwice) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    const Tensor ones = torch::ones({2, 3});
    const Tensor mean =
        mean_of(group.rank() == 0 ? rows_of({2, 2}, ones) : rows_of({0, 2}, ones), group);
    auto expected = torch::zeros({4, 3});
    expected[0] = 0.5;
    expected[2] = 1.5;
    LOCKSTEP_CHECK(mean.is_coalesced() && mean._nnz() == 2, mean._nnz());
    LOCKSTEP_CHECK(mean.to_dense().equal(expected), mean.to_dense());
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A rank without a gradient does not know how many of the dimensions are sparse.
TEST_P(SparseReduction, ARankWithoutIndicesAdoptsTheOthersDimensions) {
  const auto errors = run_group(3, GetParam(), [](ProcessGroup group) {
    const Tensor numbers = dense_numbers(6);
    const Tensor mean =
        mean_of(group.rank() == 1 ? numbers.to_sparse() : empty_sparse(numbers), group);
    LOCKSTEP_CHECK(mean.sparse_dim() == 2, mean.sparse_dim());
    LOCKSTEP_CHECK(mean.to_dense().allclose(numbers / 3), mean.to_dense());
  });
  EXPECT_EQ(errors, no_errors(3));
}

// The rank with fewer rows sends zeros behind them, which are not rows of the mean.
TEST_P(SparseReduction, HasOnlyRowsThatARankHas) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    const Tensor mean = mean_of(group.rank() == 0 ? rows_of({3}, torch::ones({1, 3}))
                                                  : rows_of({1, 2}, torch::ones({2, 3})),
                                group);
    LOCKSTEP_CHECK(mean.indices().equal(torch::tensor({{1, 2, 3}}, torch::kInt64)), mean.indices());
    LOCKSTEP_CHECK(mean.values().equal(torch::full({3, 3}, 0.5F)), mean.values());
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(SparseReduction, KeepsTypesAndDenseDimensions) {
  for (const auto type : {torch::kFloat64, torch::kComplexFloat}) {
    const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
      const Tensor values = torch::full({1, 3, 2}, 1 + group.rank(), type);
      const Tensor rows = torch::full({1, 1}, group.rank(), torch::kInt64);
      const Tensor mean = mean_of(torch::sparse_coo_tensor(rows, values, {4, 3, 2}), group);
      LOCKSTEP_CHECK(mean.scalar_type() == type && mean.dense_dim() == 2, mean.dense_dim());
      LOCKSTEP_CHECK(mean._nnz() == 2, mean._nnz());
      LOCKSTEP_CHECK(mean.values()[0].equal(torch::full({3, 2}, 0.5, type)), mean.values());
      LOCKSTEP_CHECK(mean.values()[1].equal(torch::full({3, 2}, 1, type)), mean.values());
    });
    EXPECT_EQ(errors, no_errors(2)) << c10::toString(type);
  }
}

TEST_P(SparseReduction, IsEmptyWhereAllRanksAre) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    const Tensor zeros = torch::zeros({4, 3});
    const Tensor mean = mean_of(group.rank() == 0 ? zeros.to_sparse() : empty_sparse(zeros), group);
    LOCKSTEP_CHECK(mean._nnz() == 0 && mean.sparse_dim() == 1, mean.sparse_dim());
    LOCKSTEP_CHECK(mean.to_dense().equal(zeros), mean.to_dense());
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(SparseReduction, RefusesGradientsOfDifferentKinds) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    const Tensor numbers = dense_numbers(1);
    const Tensor gradient =
        group.rank() == 0 ? rows_of({1}, torch::ones({1, 3})) : numbers.to_sparse();
    const std::string message = message_of<ConfigError>([&] { mean_of(gradient, group); });
    group.barrier();
    LOCKSTEP_CHECK(message ==
                       "ranks have sparse gradients of different kinds for one parameter: 1 and, "
                       "on rank 1, 2 sparse dimensions",
                   message);
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep::parallel
