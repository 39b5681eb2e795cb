// The metrics that Lockstep provides, alone and through a Trainer.
#include <lockstep/train/task/standard_metrics.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/train/task/sum_metric.h>
#include <tests/support/messages.h>
#include <tests/train/staged_net.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

const torch::Tensor kOutputs =
    torch::tensor({{0.1, 0.5, 0.2}, {0.9, 0.3, 0.4}, {0.1, 0.2, 0.7}, {0.6, 0.3, 0.1}});
const torch::Tensor kTargets = torch::tensor({1, 2, 2, 1});

TEST(StandardMetrics, CountClassesAmongTheBest) {
  TopKAccuracy one(1), two(2, "best_two");
  for (TopKAccuracy* metric : {&one, &two}) {
    EXPECT_TRUE(std::isnan(metric->values()[0].value)) << "no samples";
    metric->update(kOutputs.slice(0, 0, 3), kTargets.slice(0, 0, 3));
    metric->update(kOutputs.slice(0, 3), kTargets.slice(0, 3));
  }
  EXPECT_EQ(one.values()[0].name, "top1_accuracy");
  EXPECT_EQ(two.values()[0].name, "best_two");
  EXPECT_DOUBLE_EQ(one.values()[0].value, 2.0 / 4);
  EXPECT_DOUBLE_EQ(two.values()[0].value, 4.0 / 4);
  EXPECT_EQ(two.values()[0].unit, MetricUnit::kFraction);
  two.reset();
  EXPECT_TRUE(std::isnan(two.values()[0].value));
  two.update(kOutputs.slice(0, 3), torch::tensor({2}));
  EXPECT_EQ(two.values()[0].value, 0) << "the correct answers before the reset do not count";
}

TEST(StandardMetrics, CountClassesByOutputs) {
  ConfusionMatrix confusion(3, {"cat", "dog", "owl"});
  confusion.update(kOutputs, kTargets);
  confusion.update(kOutputs, kTargets);
  EXPECT_TRUE(confusion.matrix().equal(torch::tensor({{0, 0, 0}, {2, 2, 0}, {2, 0, 2}})));
  EXPECT_DOUBLE_EQ(confusion.values()[0].value, 0.5);
  EXPECT_EQ(confusion.values()[0].name, "confusion_accuracy");
  EXPECT_EQ(confusion.values()[0].unit, MetricUnit::kFraction);
  confusion.matrix().zero_();  // a copy
  const MetricTable table = confusion.tables().at(0);
  EXPECT_EQ(table.name, "confusion");
  EXPECT_EQ(table.labels, (std::vector<std::string>{"cat", "dog", "owl"}));
  EXPECT_EQ(table.rows, (std::vector<std::vector<double>>{{0, 0, 0}, {2, 2, 0}, {2, 0, 2}}));
  confusion.reset();
  EXPECT_TRUE(std::isnan(confusion.values()[0].value)) << "no samples";
  const ConfusionMatrix named(2, {}, "answers");
  EXPECT_EQ(named.name(), "answers");
  EXPECT_EQ(named.values()[0].name, "answers_accuracy");
  EXPECT_EQ(named.tables().at(0).name, "answers");
  EXPECT_TRUE(named.tables().at(0).labels.empty());
}

// They are what softmax and the mean loss are made of.
TEST(ClassificationTask, GivesProbabilitiesAndLossesOfEachSample) {
  const torch::Tensor logits = kOutputs.to(torch::kFloat32);
  const torch::Tensor expected = logits.softmax(1);
  const ClassificationTask of_logits(MnistNet(), ClassificationLoss::kCrossEntropy);
  const ClassificationTask of_logarithms(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  EXPECT_TRUE(of_logits.probabilities(logits).equal(expected));
  EXPECT_TRUE(of_logarithms.probabilities(logits.log_softmax(1)).allclose(expected));
  const torch::Tensor half = of_logits.probabilities(logits.to(torch::kBFloat16));
  EXPECT_EQ(half.scalar_type(), torch::kFloat32);
  const torch::Tensor losses = -expected.gather(1, kTargets.unsqueeze(1)).squeeze(1).log();
  EXPECT_TRUE(of_logits.sample_losses(logits, kTargets).allclose(losses));
  EXPECT_TRUE(of_logarithms.sample_losses(logits.log_softmax(1), kTargets).allclose(losses));
  const torch::Tensor shares = torch::one_hot(kTargets, 3).to(torch::kFloat32);  // as if mixed
  EXPECT_TRUE(of_logarithms.sample_losses(logits.log_softmax(1), shares).allclose(losses));
  EXPECT_TRUE(of_logits.loss(logits, kTargets).allclose(losses.mean()));
}

// 17 * 20 is more than a byte holds.
TEST(StandardMetrics, CountClassesOfAnyWholeType) {
  const torch::Tensor outputs = torch::eye(20).index_select(0, torch::tensor({3, 17}));
  for (const auto type : {torch::kUInt8, torch::kInt8, torch::kInt32}) {
    ConfusionMatrix confusion(20);
    TopKAccuracy one(1);
    for (Metric* metric : {static_cast<Metric*>(&confusion), static_cast<Metric*>(&one)}) {
      metric->update(outputs, torch::tensor({17, 17}).to(type));
    }
    auto expected = torch::zeros({20, 20}, torch::kInt64);
    expected[17][3] = 1;
    expected[17][17] = 1;
    EXPECT_TRUE(confusion.matrix().equal(expected)) << type;
    EXPECT_DOUBLE_EQ(one.values()[0].value, 0.5) << type;
  }
}

TEST(StandardMetrics, MeasureErrorsInAWideType) {
  MeanSquaredError bytes, halves, doubles;
  bytes.update(torch::tensor({3}).to(torch::kUInt8), torch::tensor({5}).to(torch::kUInt8));
  EXPECT_DOUBLE_EQ(bytes.values()[0].value, 4) << "3 - 5 is no byte";
  halves.update(torch::full({2}, 300, torch::kHalf), torch::zeros({2}, torch::kHalf));
  EXPECT_DOUBLE_EQ(halves.values()[0].value, 90000) << "more than float16 holds";
  doubles.update(torch::full({1}, 1 + 1e-9, torch::kFloat64), torch::ones({1}, torch::kFloat64));
  EXPECT_NEAR(doubles.values()[0].value / 1e-18, 1, 1e-6) << "less than float32 resolves";
}

// float32 resolves neither a billionth next to 1 nor 1 next to 2^24.
TEST(StandardMetrics, MeasureErrorsInTheWiderOfTwoTypes) {
  const torch::Tensor one = torch::ones({1});
  const torch::Tensor little_more = torch::full({1}, 1 + 1e-9, torch::kFloat64);
  for (const auto& [output, target] : {std::pair(one, little_more), {little_more, one}}) {
    MeanSquaredError mse;
    mse.update(output, target);
    EXPECT_NEAR(mse.values()[0].value / 1e-18, 1, 1e-6);
  }
  constexpr std::int64_t kLarge = 1 << 24;
  for (const auto type : {torch::kInt32, torch::kInt64}) {
    const torch::Tensor large = torch::full({1}, kLarge, type);
    const torch::Tensor next = torch::full({1}, kLarge + 1, type);
    const torch::Tensor as_float = torch::full({1}, static_cast<double>(kLarge), torch::kFloat32);
    for (const auto& [output, target] :
         {std::pair(large, next), {next, large}, {as_float, next}, {next, as_float}}) {
      MeanSquaredError mse;
      mse.update(output, target);
      EXPECT_EQ(mse.values()[0].value, 1) << type;
    }
  }
  for (const auto type : {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kHalf,
                          torch::kBFloat16, torch::kFloat32}) {
    MeanSquaredError mse;
    mse.update(torch::zeros({4}, type), torch::ones({4}, type));
    EXPECT_EQ(mse.values()[0].value, 1) << type;
  }
}

// 4096 * 4096 + 1 is more than float32 holds, in one batch and over several.
TEST(StandardMetrics, AddUpMoreThanFloat32Holds) {
  const torch::Tensor values = torch::tensor({4096.0F, 1.0F, 0.0F, 0.0F});
  MeanSquaredError whole, parts;
  whole.update(values, torch::zeros({4}));
  SumMetric total(
      "total", 1, [](const torch::Tensor& output, const torch::Tensor&) { return output.square(); },
      [](const std::vector<double>& sums) { return sums[0]; });
  for (std::int64_t i = 0; i < 4; ++i) {
    const torch::Tensor part = values.narrow(0, i, 1);
    parts.update(part, torch::zeros({1}));
    total.update(part, part);
  }
  EXPECT_EQ(whole.values()[0].value, 16'777'217.0 / 4);
  EXPECT_EQ(parts.values()[0].value, 16'777'217.0 / 4);
  EXPECT_EQ(total.values()[0].value, 16'777'217.0);
}

TEST(StandardMetrics, MeasureErrorsOverAllElements) {
  MeanSquaredError mse;
  Psnr psnr(2.0);
  for (Metric* metric : {static_cast<Metric*>(&mse), static_cast<Metric*>(&psnr)}) {
    metric->update(torch::tensor({{1.0F, 2.0F}}), torch::tensor({{1.0F, 0.0F}}));
    metric->update(torch::zeros({3, 2}), torch::zeros({3, 2}));
  }
  EXPECT_DOUBLE_EQ(mse.values()[0].value, 4.0 / 8);
  EXPECT_DOUBLE_EQ(psnr.values()[0].value, 10 * std::log10(4.0 / 0.5));
  EXPECT_EQ(psnr.values()[0].name, "psnr");
  psnr.reset();
  psnr.update(torch::ones({2}), torch::ones({2}));
  EXPECT_EQ(psnr.values()[0].value, std::numeric_limits<double>::infinity());
  mse.reset();
  EXPECT_TRUE(std::isnan(mse.values()[0].value)) << "no elements";
  mse.update(torch::full({2}, 3.0), torch::zeros({2}));
  EXPECT_EQ(mse.values()[0].value, 9);
  EXPECT_EQ(mse.values()[0].name, "mse");
  Psnr usual;  // for values between 0 and 1
  usual.update(torch::full({4}, 0.1), torch::zeros({4}));
  EXPECT_NEAR(usual.values()[0].value, 20, 1e-5);
  EXPECT_EQ(usual.values()[0].unit, MetricUnit::kNumber);
}

TEST(StandardMetrics, RefuseWhatTheyCannotTake) {
  EXPECT_THROW(TopKAccuracy(0), ConfigError);
  EXPECT_THROW(ConfusionMatrix(0), ConfigError);
  EXPECT_THROW(ConfusionMatrix(16385), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { ConfusionMatrix(2, {"cat"}); }),
            "ConfusionMatrix: class_names must have a name for each of 2 classes, or none, got 1");
  EXPECT_THROW(Psnr(0), ConfigError);
  TopKAccuracy five(5);
  EXPECT_THAT(message_of<ConfigError>([&] { five.update(kOutputs, kTargets); }),
              HasSubstr("metric top5_accuracy: the number of classes must be at least 5, got 3"));
  TopKAccuracy(3).update(kOutputs, kTargets);  // as many as there are classes
  ConfusionMatrix two(2);
  EXPECT_THAT(message_of<ConfigError>([&] { two.update(kOutputs, kTargets); }),
              HasSubstr("got outputs of 3 classes, expected 2"));
  EXPECT_THAT(message_of<ConfigError>([&] { two.update(kOutputs, kOutputs); }),
              HasSubstr("expected [N, classes] and [N] whole numbers"));
  MeanSquaredError mse;
  EXPECT_THAT(message_of<ConfigError>([&] { mse.update(kOutputs, kTargets); }),
              HasSubstr("got outputs [4, 3] and targets [4]; expected one shape"));
  const torch::Tensor complex = torch::complex(kOutputs, kOutputs);
  for (const auto& [output, target] : {std::pair(complex, kOutputs), {kOutputs, complex}}) {
    EXPECT_THAT(
        message_of<ConfigError>([&, &o = output, &t = target] { mse.update(o, t); }),
        testing::AllOf(HasSubstr("metric mse: got outputs of type "),
                       HasSubstr("; expected real numbers, such as those of view_as_real()")));
  }
}

// The F1 score of class 2.
MetricPtr make_f1() {
  return std::make_shared<SumMetric>(
      "f1", 2,
      [](const torch::Tensor& output, const torch::Tensor& target) {
        const torch::Tensor found = output.argmax(1).eq(2), wanted = target.eq(2);
        return torch::stack({found.logical_and(wanted).sum(), found.ne(wanted).sum()});
      },
      [](const std::vector<double>& sums) { return 2 * sums[0] / (2 * sums[0] + sums[1]); },
      MetricUnit::kFraction);
}

TEST(SumMetric, IsAFunctionOfTheSumsOfAllBatches) {
  const MetricPtr f1 = make_f1();
  EXPECT_TRUE(std::isnan(f1->values()[0].value)) << "no samples";
  f1->update(kOutputs.slice(0, 0, 3), kTargets.slice(0, 0, 3));
  f1->update(kOutputs.slice(0, 3), kTargets.slice(0, 3));
  EXPECT_EQ(f1->values()[0].name, "f1");
  EXPECT_EQ(f1->values()[0].unit, MetricUnit::kFraction);
  EXPECT_DOUBLE_EQ(f1->values()[0].value, 2.0 / 3) << "one hit, one miss";
  EXPECT_TRUE(f1->state().at(0).equal(torch::tensor({1.0, 1.0}, torch::kFloat64)));
  f1->reset();
  EXPECT_TRUE(std::isnan(f1->values()[0].value));
}

TEST(SumMetric, RefusesAnotherNumberOfSums) {
  const auto one = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  const auto value = [](const std::vector<double>& sums) { return sums[0]; };
  EXPECT_EQ(message_of<ConfigError>([&] { SumMetric("total", 0, one, value); }),
            "metric total: num_sums must be at least 1, got 0");
  SumMetric total("total", 1, one, value);
  EXPECT_EQ(message_of<ConfigError>([&] { total.update(kOutputs, kTargets); }),
            "metric total: the sums of a batch have shape [], expected [1]");
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {2, 1}}) {
    const auto others = [&](const torch::Tensor&, const torch::Tensor&) {
      return torch::ones(shape);
    };
    SumMetric two("two", 2, others, value);
    EXPECT_EQ(message_of<ConfigError>([&] { two.update(kOutputs, kTargets); }),
              lockstep::str("metric two: the sums of a batch have shape ", at::IntArrayRef(shape),
                            ", expected [2]"));
  }
  EXPECT_EQ(message_of<ConfigError>([&] { SumMetric("total", 1, nullptr, value); }),
            "metric total: a function is empty");
  EXPECT_EQ(message_of<ConfigError>([&] { SumMetric("total", 1, one, nullptr); }),
            "metric total: a function is empty");
}

// A user-defined metric: the confidence of the net's answers, in tenths.
class Certainty final : public Metric {
 public:
  Certainty() { Certainty::reset(); }
  const std::string& name() const override { return name_; }
  void reset() override { counts_ = torch::zeros({11}, torch::kInt64); }
  void update(const torch::Tensor& output, const torch::Tensor&) override {
    const torch::Tensor tenth = std::get<0>(output.softmax(1).max(1)).mul(10).to(torch::kInt64);
    counts_.scatter_add_(0, tenth, torch::ones_like(tenth));
  }
  std::vector<torch::Tensor> state() const override { return {counts_}; }
  std::vector<MetricValue> values() const override {
    return {{.name = name_ + "_samples", .value = counts_.sum().item<double>()}};
  }
  torch::Tensor counts() const { return counts_; }

 private:
  std::string name_ = "certainty";
  torch::Tensor counts_;
};

struct Judged {
  Evaluation test;
  torch::Tensor confusion;
  torch::Tensor certainty;
};

// Evaluates the initial net with several metrics.
Judged judge(ProcessGroup group, const std::string& strategy,
             const StrategyOptions& strategy_options = {}) {
  ClassificationTask task = make_staged_task(make_staged_net());
  const auto confusion = std::make_shared<ConfusionMatrix>(10);
  const auto certainty = std::make_shared<Certainty>();
  for (const MetricPtr& metric : {MetricPtr(std::make_shared<TopKAccuracy>(3)),
                                  MetricPtr(confusion), MetricPtr(certainty), make_f1()}) {
    task.add_metric(metric);
  }
  TrainerOptions still = options(1);
  still.optimizer = SgdOptions{.lr = 0};
  still.max_steps = 1;
  auto chosen = make_strategy(strategy, group, strategy_options);
  const DataShare share = chosen->data_share();
  Loader loader(train_images(),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = kGlobalBatch / share.size});
  const auto test = [&] {
    return std::make_unique<Loader>(test_images(),
                                    EvaluationSampler(test_images().size(), share.rank, share.size),
                                    kNormalize, LoaderOptions{.batch_size = 8});
  };
  const RunReport report = Trainer(still, std::move(chosen)).fit(task, loader, test);
  return {*report.test, confusion->matrix(), certainty->counts().clone()};
}

void expect_same(const Judged& a, const Judged& b, const std::string& name) {
  EXPECT_TRUE(a.confusion.equal(b.confusion)) << name << a.confusion << b.confusion;
  EXPECT_TRUE(a.certainty.equal(b.certainty)) << name;
  EXPECT_NEAR(a.test.loss, b.test.loss, 1e-5) << name;
  ASSERT_EQ(a.test.values.size(), 5U) << name;
  ASSERT_EQ(b.test.values.size(), 5U) << name;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a.test.values[i].name, b.test.values[i].name) << name;
    EXPECT_EQ(a.test.values[i].value, b.test.values[i].value) << name << a.test.values[i].name;
  }
}

TEST(StandardMetrics, AreTheSameWithEveryStrategy) {
  const Judged alone = judge(group_of_one(), "single");
  EXPECT_EQ(alone.confusion.sum().item<int>(), 33);
  EXPECT_EQ(alone.certainty.sum().item<int>(), 33);
  EXPECT_EQ(alone.test.value_of("confusion_accuracy"), alone.test.accuracy());
  EXPECT_EQ(alone.test.tables.at(0).rows.size(), 10U);
  const torch::Device cpu = torch::kCPU;
  expect_same(judge(group_of_one(), "dp", {.devices = {cpu, cpu}}), alone, "dp");
  expect_same(judge(group_of_one(), "pipeline", {.stages = 2, .micro_batches = 2}), alone,
              "pipeline on threads");
  struct Way {
    const char* strategy;
    int ranks;
  };
  for (const Way& way : {Way{"ddp", 2}, Way{"zero1", 2}, Way{"pipeline", 2}, Way{"hybrid", 4}}) {
    std::vector<Judged> judged(static_cast<std::size_t>(way.ranks));
    const auto errors = testing_support::run_group(way.ranks, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      judged[static_cast<std::size_t>(group.rank())] =
          judge(group, way.strategy, {.stages = 2, .micro_batches = 2});
    });
    ASSERT_EQ(errors, testing_support::no_errors(way.ranks)) << way.strategy;
    for (const Judged& each : judged) expect_same(each, alone, way.strategy);
  }
}

}  // namespace
}  // namespace lockstep::train
