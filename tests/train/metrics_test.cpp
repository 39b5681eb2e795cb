#include <lockstep/train/metrics.h>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/train/precision.h>
#include <lockstep/train/step_seed.h>
#include <lockstep/train/strategy.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

TEST(MetricSums, IsTheMeanOverSamplesNotOverBatches) {
  MetricSums sums;
  EXPECT_EQ(sums.mean().samples, 0);
  sums.add(torch::tensor(6.0F), torch::tensor(2), 3);
  sums.add(torch::tensor(1.0F), torch::tensor(1), 1);
  const Evaluation mean = sums.mean();
  EXPECT_DOUBLE_EQ(mean.loss, 7.0 / 4);
  EXPECT_DOUBLE_EQ(mean.accuracy, 3.0 / 4);
  EXPECT_EQ(mean.samples, 4);
}

TEST(MetricSums, WeighsRanksByTheirSamples) {
  const auto errors = testing_support::run_group(3, "shm", [](ProcessGroup group) {
    MetricSums sums;
    // Rank 0 has nothing, rank 1 one sample, rank 2 two.
    sums.add(10.0 * group.rank(), group.rank(), group.rank());
    sums.all_reduce(group, torch::kCPU);
    if (sums.mean().samples != 3) throw Error("samples");
    if (sums.mean().loss != 10.0) throw Error("loss");
    if (sums.mean().accuracy != 1.0) throw Error("accuracy");
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(StepSeed, DiffersInEachArgument) {
  const auto base = step_seed(1, 2, 3, 4);
  EXPECT_EQ(base, step_seed(1, 2, 3, 4));
  for (const auto other : {step_seed(2, 2, 3, 4), step_seed(1, 3, 3, 4), step_seed(1, 2, 4, 4),
                           step_seed(1, 2, 3, 5)}) {
    EXPECT_NE(other, base);
  }
}

TEST(StepSeed, MakesRandomNumbersAFunctionOfIt) {
  seed_generators(42, torch::kCPU);
  const auto first = torch::rand({8});
  torch::rand({100});
  seed_generators(42, torch::kCPU);
  EXPECT_TRUE(torch::rand({8}).equal(first));
}

TEST(Precision, AutocastsWithinTheScopeOnly) {
  const auto x = torch::randn({4, 4});
  for (const auto& [precision, type] : {std::pair{Precision::kBf16, torch::kBFloat16},
                                        std::pair{Precision::kFp16, torch::kHalf}}) {
    const AutocastScope scope(precision, torch::kCPU);
    EXPECT_EQ(at::linear(x, x).scalar_type(), type);
  }
  EXPECT_EQ(at::linear(x, x).scalar_type(), torch::kFloat32);
  const AutocastScope scope(Precision::k32, torch::kCPU);
  EXPECT_EQ(at::linear(x, x).scalar_type(), torch::kFloat32);
  for (const char* name : {"32", "16", "bf16"}) {
    EXPECT_EQ(to_string(parse_precision(name)), name);
  }
  EXPECT_THROW(parse_precision("8"), ConfigError);
}

TEST(Strategy, SingleRefusesSeveralProcesses) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    group.barrier();  // both have arrived before one leaves
    make_strategy("single", group);
  });
  for (const auto& error : errors) EXPECT_NE(error.find("use --strategy ddp"), std::string::npos);
  const ProcessGroup alone = init_process_group({.environment = WorkerEnvironment{}});
  EXPECT_THROW(make_strategy("zero9", alone), ConfigError);
}

}  // namespace
}  // namespace lockstep
