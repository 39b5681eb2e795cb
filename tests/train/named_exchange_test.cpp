// The state of a model whose parts are on several ranks, between rank 0 and the others.
#include <lockstep/train/strategies/named_exchange.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep::train {
namespace {

using testing_support::no_errors;
using testing_support::run_group;

// Tensors of many types, some of them without dimensions, without elements or with other strides.
// Rank 1 has none.
NamedTensors tensors_of(int rank) {
  if (rank == 1) return {};
  const torch::Tensor values = torch::arange(24, torch::kFloat64).add(100 * rank).sub(7);
  const std::string name = str("rank ", rank, ".");
  return {{name + "transposed", values.view({4, 6}).t()},
          {name + "part", values.view({4, 6}).select(1, 2)},
          {name + "half", values.to(torch::kHalf)},
          {name + "bool", values.remainder(3).to(torch::kBool)},
          {name + "count", torch::tensor(7 + rank)},
          {name + "empty", torch::empty({0, 3}, torch::kInt8)},
          {name + "complex", torch::complex(values, values.neg()).view({2, 3, 4})}};
}

void require_equal(const NamedTensors& got, const NamedTensors& expected) {
  LOCKSTEP_CHECK(got.size() == expected.size(), "got ", got.size(), " tensors");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto& [name, tensor] = got[i];
    LOCKSTEP_CHECK(name == expected[i].first, "got ", name);
    LOCKSTEP_CHECK(tensor.scalar_type() == expected[i].second.scalar_type(), "another type of ",
                   name);
    LOCKSTEP_CHECK(tensor.equal(expected[i].second), "other values of ", name);
  }
}

TEST(NamedExchange, GathersTensorsOfEveryKindInRankOrder) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(3, backend, [](ProcessGroup group) {
      const NamedTensors own = tensors_of(group.rank());
      const NamedTensors all = gather_named(own, group, torch::kCPU);
      group.barrier();
      NamedTensors expected;
      if (group.rank() == 0) {
        expected = tensors_of(0);
        for (const auto& entry : tensors_of(2)) expected.push_back(entry);
      }
      require_equal(all, expected);
    });
    EXPECT_EQ(errors, no_errors(3)) << backend;
  }
}

TEST(NamedExchange, ScattersToEachRankWhatIsItsOwn) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(3, backend, [](ProcessGroup group) {
      std::vector<NamedTensors> of_ranks;
      if (group.rank() == 0) of_ranks = {tensors_of(2), tensors_of(1), tensors_of(0)};
      const NamedTensors own = scatter_named(of_ranks, group, torch::kCPU);
      group.barrier();
      require_equal(own, tensors_of(2 - group.rank()));
    });
    EXPECT_EQ(errors, no_errors(3)) << backend;
  }
}

TEST(NamedExchange, NeedsNoMessageOfOneRank) {
  const auto errors = run_group(1, "shm", [](ProcessGroup group) {
    const NamedTensors own = tensors_of(0);
    require_equal(gather_named(own, group, torch::kCPU), own);
    require_equal(scatter_named({own}, group, torch::kCPU), own);
  });
  EXPECT_EQ(errors, no_errors(1));
}

}  // namespace
}  // namespace lockstep::train
