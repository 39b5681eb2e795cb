#include <lockstep/train/task/metrics.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include <lockstep/core/error.h>
#include <lockstep/train/optimization/memory_format.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/slow_precision.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/standard_metrics.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::train {
namespace {

using testing_support::message_of;
using testing_support::run_group;

TEST(Metrics, AreMeansOverSamplesNotOverBatches) {
  Metrics metrics;
  EXPECT_EQ(metrics.mean().samples, 0);
  EXPECT_FALSE(metrics.mean().has_loss);
  metrics.add(torch::tensor(6.0F), torch::tensor(2), 3);
  metrics.add(torch::tensor(1.0F), torch::tensor(1), 1);
  const Evaluation mean = metrics.mean();
  EXPECT_DOUBLE_EQ(mean.loss, 7.0 / 4);
  EXPECT_DOUBLE_EQ(mean.accuracy(), 3.0 / 4);
  EXPECT_EQ(mean.samples, 4);
}

TEST(Metrics, HaveNamesInTheirOrder) {
  Metrics metrics;
  metrics.add("psnr", 30, 1);
  metrics.add("loss", torch::tensor(2.0), 4);
  metrics.add("psnr", torch::tensor(20.0), 3);
  metrics.add_sum("tokens", torch::tensor(8), 4);
  metrics.add_sum("tokens", 2, 1, MetricUnit::kFraction);
  metrics.add("none", std::nan(""), 0);
  const Evaluation mean = metrics.mean();
  EXPECT_TRUE(mean.has_loss);
  EXPECT_DOUBLE_EQ(mean.loss, 2);
  ASSERT_EQ(mean.values.size(), 3U);
  EXPECT_EQ(mean.values[0].name, "psnr");
  EXPECT_DOUBLE_EQ(mean.values[0].value, (30 + 3 * 20) / 4.0);
  EXPECT_EQ(mean.values[1].name, "tokens");
  EXPECT_DOUBLE_EQ(mean.values[1].value, 10.0 / 5);
  EXPECT_EQ(mean.values[1].unit, MetricUnit::kNumber) << "the first call decides";
  EXPECT_TRUE(std::isnan(mean.values[2].value)) << "there is no sample of it";
  EXPECT_EQ(mean.samples, 5);
  EXPECT_EQ(mean.value_of("loss"), 2);
  EXPECT_EQ(mean.value_of("psnr"), mean.values[0].value);
  EXPECT_EQ(mean.value_of("accuracy"), std::nullopt);
  EXPECT_EQ(mean.accuracy(), 0);
}

TEST(Metrics, HaveTheUnitsThatTheyAreAddedWith) {
  for (const MetricUnit unit : {MetricUnit::kNumber, MetricUnit::kFraction}) {
    Metrics metrics;
    metrics.add("mean", 0.5, 2, unit);
    metrics.add("mean of a tensor", torch::tensor(0.5), 2, unit);
    metrics.add_sum("sum", 1.0, 2, unit);
    metrics.add_sum("sum of a tensor", torch::tensor(1.0), 2, unit);
    const Evaluation mean = metrics.mean();
    ASSERT_EQ(mean.values.size(), 4U);
    for (const MetricValue& value : mean.values) {
      EXPECT_EQ(value.unit, unit) << value.name;
      EXPECT_EQ(value.value, 0.5) << value.name;
    }
  }
}

// Both ways to add the answers of a classifier give a share of the samples.
TEST(Metrics, ShowTheAccuracyAsAFraction) {
  Metrics tensors, numbers, without_answers;
  tensors.add(torch::tensor(6.0), torch::tensor(3), 4);
  numbers.add(6.0, 3.0, 4);
  without_answers.add(torch::tensor(6.0), torch::Tensor(), 4);
  for (const Metrics* metrics : {&tensors, &numbers}) {
    const Evaluation mean = metrics->mean();
    EXPECT_EQ(mean.loss, 1.5);
    ASSERT_EQ(mean.values.size(), 1U);
    EXPECT_EQ(mean.values[0].name, "accuracy");
    EXPECT_EQ(mean.values[0].value, 0.75);
    EXPECT_EQ(mean.values[0].unit, MetricUnit::kFraction);
  }
  EXPECT_EQ(without_answers.mean().loss, 1.5);
  EXPECT_TRUE(without_answers.mean().values.empty());
}

TEST(Metrics, KeepWhatAddsUpToMoreThanFloat32Holds) {
  Metrics metrics;
  const torch::Tensor large = torch::tensor(16777217.0, torch::kFloat64);
  for (int i = 0; i < 3; ++i) metrics.add_sum("loss", large, 1);
  EXPECT_EQ(metrics.mean().loss, 16777217.0);
}

// A batch without samples has no mean.
TEST(Metrics, TakeNoMeanOverNoSamples) {
  Metrics metrics;
  metrics.add("psnr", torch::tensor(std::nan("")), 0);
  metrics.add("psnr", torch::tensor(3.0F), 2);
  metrics.add("psnr", std::nan(""), 0);
  EXPECT_EQ(metrics.mean().value_of("psnr"), 3);
}

TEST(Metrics, RefuseNamesAndCountsThatCannotBe) {
  Metrics metrics;
  EXPECT_EQ(message_of<ConfigError>([&] { metrics.add("", 1, 1); }),
            "Metrics: a name must not be empty or contain a line feed, got ''");
  EXPECT_EQ(message_of<ConfigError>([&] { metrics.add("two\nlines", 1, 1); }),
            "Metrics: a name must not be empty or contain a line feed, got 'two' and more lines");
  EXPECT_EQ(message_of<ConfigError>([&] { metrics.add("psnr", 1, -1); }),
            "Metrics: 'psnr' has -1 samples; expected at least 0");
}

TEST(Metrics, RefuseTwoValuesOfOneName) {
  Metrics metrics({std::make_shared<TopKAccuracy>(1, "accuracy")});
  metrics.add(1.0, 1, 1);
  EXPECT_EQ(message_of<ConfigError>([&] { metrics.mean(); }),
            "Metrics: two values have the name 'accuracy'; give each metric its own");
  Metrics with_loss({std::make_shared<MeanSquaredError>("loss")});
  with_loss.add("loss", 1, 1);
  EXPECT_EQ(message_of<ConfigError>([&] { with_loss.mean(); }),
            "Metrics: two values have the name 'loss'; give each metric its own");
  Metrics with_table({std::make_shared<ConfusionMatrix>(2)});
  with_table.add("confusion", 1, 1);
  EXPECT_EQ(message_of<ConfigError>([&] { with_table.mean(); }),
            "Metrics: two values have the name 'confusion'; give each metric its own");
}

TEST(Metrics, WeighRanksByTheirSamples) {
  const auto errors = run_group(3, "shm", [](ProcessGroup group) {
    Metrics metrics;
    // Rank 0 has no samples, rank 1 has one, rank 2 has two.
    metrics.add(10.0 * group.rank(), group.rank(), group.rank());
    metrics.all_reduce(group, torch::kCPU);
    if (metrics.mean().samples != 3) throw Error("samples");
    if (metrics.mean().loss != 10.0) throw Error("loss");
    if (metrics.mean().accuracy() != 1.0) throw Error("accuracy");
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

// This happens when an evaluation has fewer batches than ranks.
TEST(Metrics, TakeOverTheNamesOfOthersOnRanksWithoutABatch) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(3, backend, [](ProcessGroup group) {
      const auto confusion = std::make_shared<ConfusionMatrix>(2);
      Metrics metrics({confusion});
      if (group.rank() == 1) {
        metrics.add("share", 0.5, 2, MetricUnit::kFraction);
        metrics.add("loss", 3, 2);
        metrics.update(torch::tensor({{0.0, 1.0}, {1.0, 0.0}}), torch::tensor({1, 1}));
      }
      metrics.all_reduce(group, torch::kCPU);
      const Evaluation mean = metrics.mean();
      LOCKSTEP_CHECK(mean.loss == 3 && mean.samples == 2, "loss ", mean.loss);
      LOCKSTEP_CHECK(mean.values.at(0).name == "share" && mean.values.at(0).value == 0.5 &&
                         mean.values.at(0).unit == MetricUnit::kFraction,
                     "another first value");
      LOCKSTEP_CHECK(mean.value_of("confusion_accuracy") == 0.5, "another confusion");
      LOCKSTEP_CHECK(confusion->matrix().equal(torch::tensor({{0, 0}, {1, 1}})),
                     confusion->matrix());
    });
    EXPECT_EQ(errors, testing_support::no_errors(3)) << backend;
  }
}

// There may be nothing but states, nothing but sums, or nothing at all.
TEST(Metrics, AddUpOverRanksWhatThereIs) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [](ProcessGroup group) {
      const auto confusion = std::make_shared<ConfusionMatrix>(2);
      Metrics states({confusion});
      states.update(torch::tensor({0.0, 1.0}).view({1, 2}),
                    torch::full({1}, group.rank(), torch::kInt64));
      states.all_reduce(group, torch::kCPU);
      LOCKSTEP_CHECK(confusion->matrix().equal(torch::tensor({{0, 1}, {0, 1}})),
                     confusion->matrix());
      const Evaluation mean_of_states = states.mean();
      LOCKSTEP_CHECK(!mean_of_states.has_loss && mean_of_states.samples == 0,
                     mean_of_states.samples);
      LOCKSTEP_CHECK(mean_of_states.value_of("confusion_accuracy") == 0.5, "another confusion");

      Metrics sums;
      sums.add("psnr", 1 + 2 * group.rank(), 1 + group.rank());
      for (const double expected : {7.0 / 3, 14.0 / 6}) {  // the second time, ranks have the sums
        sums.all_reduce(group, torch::kCPU);
        LOCKSTEP_CHECK(sums.mean().value_of("psnr") == expected, "another mean");
      }
      LOCKSTEP_CHECK(sums.mean().samples == 6, sums.mean().samples);

      Metrics nothing;
      nothing.all_reduce(group, torch::kCPU);
      LOCKSTEP_CHECK(nothing.mean().values.empty() && !nothing.mean().has_loss, "something");
    });
    EXPECT_EQ(errors, testing_support::no_errors(2)) << backend;
  }
}

// States that are parts of a larger tensor, in another order in memory, or empty.
class StridedStates final : public Metric {
 public:
  StridedStates() { StridedStates::reset(); }
  const std::string& name() const override { return name_; }
  void reset() override {
    whole_ = torch::zeros({4, 6}, torch::kInt64);
    means_ = torch::zeros({3, 2}, torch::kFloat64);
  }
  void update(const torch::Tensor& output, const torch::Tensor&) override {
    for (const torch::Tensor& part : state()) part.add_(output.to(part.scalar_type()));
  }
  std::vector<torch::Tensor> state() const override {
    return {whole_.select(1, 2), means_.t(), torch::zeros({0}), whole_.narrow(1, 3, 2)};
  }
  std::vector<MetricValue> values() const override { return {}; }
  torch::Tensor whole() const { return whole_; }
  torch::Tensor means() const { return means_; }

 private:
  std::string name_ = "strided";
  torch::Tensor whole_, means_;
};

TEST(Metrics, AddUpStatesThatAreNotContiguous) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(3, backend, [](ProcessGroup group) {
      const auto metric = std::make_shared<StridedStates>();
      Metrics metrics({metric});
      metrics.update(torch::tensor(group.rank() + 1), torch::Tensor());
      metric->means()[2][0] = 10 * group.rank();
      metrics.all_reduce(group, torch::kCPU);
      auto whole = torch::zeros({4, 6}, torch::kInt64);
      whole.narrow(1, 2, 3).fill_(6);
      auto means = torch::full({3, 2}, 6.0, torch::kFloat64);
      means[2][0] = 30;
      LOCKSTEP_CHECK(metric->whole().equal(whole), metric->whole());
      LOCKSTEP_CHECK(metric->means().equal(means), metric->means());
    });
    EXPECT_EQ(errors, testing_support::no_errors(3)) << backend;
  }
}

TEST(Metrics, NameWhatRanksDisagreeOn) {
  const auto errors = run_group(3, "shm", [](ProcessGroup group) {
    Metrics metrics;
    if (group.rank() > 0) metrics.add("loss", 1, 1);
    if (group.rank() == 1) metrics.add("psnr", 1, 1);
    metrics.all_reduce(group, torch::kCPU);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(error,
              "Metrics: rank 1 has added loss, psnr, but rank 2 loss; every rank must add the same "
              "names in the same order");
  }
  const auto others = run_group(2, "shm", [](ProcessGroup group) {
    Metrics metrics({std::make_shared<ConfusionMatrix>(2 + group.rank())});
    metrics.all_reduce(group, torch::kCPU);
  });
  for (const auto& error : others) {
    EXPECT_THAT(error, testing::HasSubstr("ranks 0 and 1 have different metrics"));
  }
}

TEST(StepSeed, DiffersInEachArgument) {
  const auto base = step_seed(1, 2, 3, 4);
  EXPECT_EQ(base, step_seed(1, 2, 3, 4));
  constexpr std::int64_t kHigh = std::int64_t{1} << 40;
  for (const auto other :
       {step_seed(2, 2, 3, 4), step_seed(1, 3, 3, 4), step_seed(1, 2, 4, 4), step_seed(1, 2, 3, 5),
        step_seed(1 + kHigh, 2, 3, 4), step_seed(1, 2, 3 + kHigh, 4)}) {
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
  for (const auto& [precision, type] :
       {std::pair{Precision::kBf16, torch::kBFloat16}, std::pair{Precision::kFp16, torch::kHalf}}) {
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

TEST(Precision, ReturnsToTheTypeOfTheScopeAround) {
  const auto x = torch::randn({4, 4});
  const auto type_here = [&] { return at::linear(x, x).scalar_type(); };
  const AutocastScope outer(Precision::kFp16, torch::kCPU);
  {
    const AutocastScope inner(Precision::kBf16, torch::kCPU);
    EXPECT_EQ(type_here(), torch::kBFloat16);
    const AutocastScope none(Precision::k32, torch::kCPU);
    EXPECT_EQ(type_here(), torch::kBFloat16) << "nothing is switched off";
  }
  EXPECT_EQ(type_here(), torch::kHalf);
}

TEST(SlowPrecisions, FollowTheInstructionsOfTheProcessor) {
  const testing_support::TemporaryDirectory scratch;
  const auto slow = [&](const std::string& cpuinfo) {
    scratch.write("cpuinfo", cpuinfo);
    return slow_precisions(scratch / "cpuinfo");
  };
  const std::vector<std::string> both = {"bf16", "16"};
  const std::vector<std::string> only_float16 = {"16"};
  EXPECT_EQ(slow("model name\t: Zen 3\nflags\t\t: fpu avx avx2\n"), both);
  EXPECT_EQ(slow("flags\t\t: avx512f avx512_bf16 avx512vbmi\n"), only_float16);
  EXPECT_EQ(slow("flags\t\t: amx_tile amx_bf16\n"), only_float16);
  EXPECT_EQ(slow("Features\t: fp asimd i8mm bf16 dgh\n"), only_float16) << "Arm";
  EXPECT_EQ(slow("Features\t: fp asimd\n"), both);
  EXPECT_EQ(slow("flags\t\t: avx512_bf16x\n"), both) << "another word";
  EXPECT_EQ(slow("model name\t: bf16\nflags\t\t: avx2\n"), both) << "a name";
  EXPECT_EQ(slow(""), both);
  EXPECT_EQ(slow_precisions(scratch / "none"), both);
}

TEST(SlowPrecisions, AreDescribed) {
  const std::vector<std::string> both = {"bf16", "16"};
  EXPECT_EQ(slow_precision_text(Precision::kBf16, both),
            "bfloat16 is 5 to 20 times slower than float32 on this processor, which has no "
            "instructions for it");
  EXPECT_EQ(slow_precision_text(Precision::kFp16, both), "float16 is slower than float32 on a CPU");
  EXPECT_EQ(slow_precision_text(Precision::kBf16, {"16"}), "");
  EXPECT_EQ(slow_precision_text(Precision::k32, both), "");
}

TEST(Strategy, SingleRefusesSeveralProcesses) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    group.barrier();  // both ranks must arrive before one leaves
    make_strategy("single", group);
  });
  for (const auto& error : errors) EXPECT_NE(error.find("use strategy ddp"), std::string::npos);
  const ProcessGroup alone = init_process_group({.environment = WorkerEnvironment{}});
  EXPECT_THROW(make_strategy("zero9", alone), ConfigError);
}

// A resumed run compares these texts with those of the checkpoint.
TEST(Strategy, SaysHowItDividesABatch) {
  const ProcessGroup alone = init_process_group({.environment = WorkerEnvironment{}});
  const auto parts = [&](const char* strategy, const StrategyOptions& options) {
    return make_strategy(strategy, alone, options)->batch_parts();
  };
  for (const char* strategy : {"single", "ddp", "zero1"}) {
    EXPECT_EQ(parts(strategy, {}), "whole") << strategy;
  }
  for (const char* strategy : {"ddp", "zero1"}) {
    EXPECT_EQ(parts(strategy, {.sync_batchnorm = true}), "normalised over the ranks") << strategy;
  }
  EXPECT_EQ(parts("pipeline", {.stages = 2, .micro_batches = 1}), "1 micro-batch");
  EXPECT_EQ(parts("pipeline", {.stages = 2, .micro_batches = 3}), "3 micro-batches");
}

// With one input channel, a weight is dense in both formats.
TEST(MemoryFormat, OfConvolutionsBecomesChannelsLast) {
  struct Net : torch::nn::Module {
    torch::nn::Conv2d one = register_module("one", torch::nn::Conv2d(1, 4, 3));
    torch::nn::Conv2d three = register_module("three", torch::nn::Conv2d(3, 4, 2));
    torch::nn::Conv3d deep = register_module("deep", torch::nn::Conv3d(2, 2, 2));
  } net;
  const torch::Tensor one = net.one->weight.detach().clone();
  const torch::Tensor three = net.three->weight.detach().clone();
  const std::vector<std::int64_t> deep = net.deep->weight.strides().vec();
  const torch::Tensor parameter = net.three->weight;
  to_channels_last(net);
  EXPECT_EQ(net.one->weight.strides().vec(), (std::vector<std::int64_t>{9, 1, 3, 1}));
  EXPECT_EQ(net.three->weight.strides().vec(), (std::vector<std::int64_t>{12, 1, 6, 3}));
  EXPECT_EQ(net.deep->weight.strides().vec(), deep);
  EXPECT_TRUE(net.one->weight.equal(one));
  EXPECT_TRUE(net.three->weight.equal(three));
  EXPECT_TRUE(net.three->weight.is_same(parameter));
  EXPECT_TRUE(net.three->weight.requires_grad());
}

}  // namespace
}  // namespace lockstep::train
