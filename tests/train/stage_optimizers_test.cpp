// Combined optimizers of several stages: sparse gradients and a failing rank.
#include <lockstep/train/strategies/stage_optimizers.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep::train {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

// An optimizer without parameters whose state can be neither read nor written on some ranks, and
// that has waited for its replicas for some seconds.
class BreakableOptimizer final : public RunOptimizer {
 public:
  explicit BreakableOptimizer(bool broken, double seconds = 0)
      : broken_(broken), seconds_(seconds) {}
  void step() override {}
  void zero_grad() override {}
  Tensors gradients() override { return {}; }
  Tensors gradients_of(const Tensors&) override { return {}; }
  void clip_grad_norm(double) override {}
  void agree_through(GradScaler&) override {}
  double communication_seconds() const override { return seconds_; }
  double lr() const override { return 0; }
  void set_lr(double) override {}
  void scale_lrs(const std::vector<double>&) override {}
  void set_momentum(double) override {}
  NamedTensors state() override {
    if (broken_) throw DataError("the state is broken");
    return {};
  }
  void load_state(const NamedTensors&) override {
    if (broken_) throw DataError("the state is broken");
  }

 private:
  const bool broken_;
  const double seconds_;
};

// The errors of two ranks when `use` calls an optimizer that is broken on rank 1.
template <class Use>
std::vector<std::string> errors_of_broken(const Use& use) {
  return run_group(2, "shm", [&](ProcessGroup group) {
    std::vector<StageOptimizer> stages;
    stages.push_back(
        {.optimizer = std::make_unique<BreakableOptimizer>(group.rank() == 1), .parameters = {}});
    const auto optimizer = make_stage_optimizers(
        std::move(stages), SgdOptions(),
        StageRanks{.pipeline = group,
                   .all = group,
                   .end_all = [group](const std::string& reason) mutable { group.abort(reason); }});
    use(*optimizer, group);
  });
}

// The gradient of a repeated row is 1.5 + 1.5 = 3 and the other stage's is 4, so that the norm is
// 5.
TEST(StageOptimizers, ClipSparseGradientsByTheNormOfAll) {
  for (const int ranks : {1, 2}) {
    const auto errors = run_group(ranks, "shm", [&](ProcessGroup group) {
      torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
      (embedding->forward(torch::tensor({2, 2})).sum() * 1.5).backward();
      const torch::Tensor dense = torch::zeros({1}, torch::requires_grad());
      (dense * 4).sum().backward();
      const OptimizerOptions options = SgdOptions{.lr = 1};
      ProcessGroup alone = group.split(group.rank()).value();
      std::vector<StageOptimizer> stages;
      for (const NamedTensors& parameters : {NamedTensors{{"embedding.weight", embedding->weight}},
                                             NamedTensors{{"dense", dense}}}) {
        const int owner = ranks == 1 ? 0 : static_cast<int>(parameters[0].first == "dense");
        if (owner != group.rank()) continue;
        stages.push_back({.optimizer = make_replicated_optimizer(parameters, options, alone),
                          .parameters = parameters});
      }
      std::optional<StageRanks> coupled;
      if (ranks > 1) coupled = StageRanks{.pipeline = group, .all = group};
      const auto optimizer = make_stage_optimizers(std::move(stages), options, coupled);
      const double before = embedding->weight[2].item<double>();
      optimizer->clip_grad_norm(1);
      optimizer->step();
      if (group.rank() == 0) {
        const double step = before - embedding->weight[2].item<double>();
        LOCKSTEP_CHECK(std::abs(step - 0.6) < 1e-5, step);
      }
      if (group.rank() == ranks - 1) {
        LOCKSTEP_CHECK(std::abs(dense.item<double>() + 0.8) < 1e-5, dense);
      }
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(ranks));
  }
}

NamedTensors of_sizes(const std::vector<std::int64_t>& sizes) {
  NamedTensors parameters;
  for (const std::int64_t size : sizes) {
    parameters.emplace_back(str("p", parameters.size()), torch::zeros({size}));
  }
  return parameters;
}

std::vector<std::vector<std::string>> names_of(const std::vector<NamedTensors>& shares) {
  std::vector<std::vector<std::string>> names;
  for (const NamedTensors& share : shares) {
    names.emplace_back();
    for (const auto& [name, tensor] : share) names.back().push_back(name);
  }
  return names;
}

TEST(SharesOf, HaveAboutAsManyBytes) {
  const auto shares = [](const std::vector<std::int64_t>& sizes, std::size_t count) {
    return names_of(shares_of(of_sizes(sizes), count));
  };
  using Names = std::vector<std::vector<std::string>>;
  EXPECT_EQ(shares({1, 1, 1, 1}, 2), (Names{{"p0", "p1"}, {"p2", "p3"}}));
  EXPECT_EQ(shares({1, 1, 1, 9}, 2), (Names{{"p0", "p1", "p2"}, {"p3"}}));
  EXPECT_EQ(shares({9, 1, 1}, 2), (Names{{"p0"}, {"p1", "p2"}}));
  EXPECT_EQ(shares({5}, 3), (Names{{"p0"}}));
  EXPECT_EQ(shares({0, 0}, 2), (Names{{"p0", "p1"}}));
  EXPECT_EQ(shares({}, 2), Names{});
}

// The caller decides which stages a call reaches, and on which threads.
TEST(StageOptimizers, StepThroughTheirCaller) {
  const torch::Tensor first = torch::ones({2}, torch::requires_grad());
  const torch::Tensor second = torch::ones({3}, torch::requires_grad());
  (first.sum() + second.sum() * 2).backward();
  const ProcessGroup alone = init_process_group({.environment = WorkerEnvironment{}});
  std::vector<StageOptimizer> stages;
  for (const NamedTensors& parameters :
       {NamedTensors{{"first", first}}, NamedTensors{{"second", second}}}) {
    stages.push_back(
        {.optimizer = make_replicated_optimizer(parameters, SgdOptions{.lr = 1}, alone),
         .parameters = parameters});
  }
  std::vector<std::size_t> called;
  const auto optimizer = make_stage_optimizers(std::move(stages), SgdOptions{.lr = 1}, std::nullopt,
                                               [&](const std::function<void(std::size_t)>& of) {
                                                 for (const std::size_t stage : {1U, 0U}) {
                                                   called.push_back(stage);
                                                   std::thread([&] { of(stage); }).join();
                                                 }
                                               });
  optimizer->step();
  EXPECT_TRUE(first.equal(torch::zeros({2})));
  EXPECT_TRUE(second.equal(-torch::ones({3})));
  optimizer->zero_grad();
  EXPECT_TRUE(first.grad().equal(torch::zeros({2})));
  EXPECT_THAT(called, ::testing::ElementsAre(1, 0, 1, 0));
}

TEST(StageOptimizerFailures, EndTheRanksThatWaitForTheState) {
  const auto errors =
      errors_of_broken([](RunOptimizer& optimizer, ProcessGroup&) { optimizer.state(); });
  EXPECT_THAT(errors, Each(HasSubstr("the state is broken")));
}

TEST(StageOptimizerFailures, EndTheRanksThatHaveLoadedTheirState) {
  const auto errors = errors_of_broken([](RunOptimizer& optimizer, ProcessGroup& group) {
    optimizer.load_state({});
    group.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the state is broken")));
}

// Two stages of one process, each with a parameter whose gradient is 1.
struct TwoStages {
  TwoStages() {
    const ProcessGroup alone = init_process_group({.environment = WorkerEnvironment{}});
    const OptimizerOptions options = SgdOptions{.lr = 1, .momentum = 0.5};
    std::vector<StageOptimizer> stages;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = torch::ones({1});
      const NamedTensors own = {{str("p", i), parameters[i]}};
      stages.push_back(
          {.optimizer = make_replicated_optimizer(own, options, alone), .parameters = own});
    }
    optimizer = make_stage_optimizers(std::move(stages), options, std::nullopt);
  }
  Tensors parameters = {torch::zeros({1}, torch::requires_grad()),
                        torch::zeros({1}, torch::requires_grad())};
  std::unique_ptr<RunOptimizer> optimizer;
};

TEST(StageOptimizers, PassOnRatesAndMomentaToAllStages) {
  TwoStages two;
  EXPECT_EQ(two.optimizer->lr(), 1);
  two.optimizer->step();  // to -1, with a momentum buffer of 1
  two.optimizer->set_lr(2);
  two.optimizer->set_momentum(0.25);
  EXPECT_EQ(two.optimizer->lr(), 2);
  two.optimizer->step();  // by 2 * (0.25 * 1 + 1)
  for (const torch::Tensor& parameter : two.parameters) EXPECT_EQ(parameter.item<double>(), -3.5);
}

TEST(StageOptimizers, HaveTheGradientsOfTheParametersThatAreAskedFor) {
  TwoStages two;
  EXPECT_EQ(two.optimizer->gradients().size(), 2U);
  const torch::Tensor other = torch::zeros({1}, torch::requires_grad());
  const Tensors gradients = two.optimizer->gradients_of({other, two.parameters[1]});
  ASSERT_EQ(gradients.size(), 1U);
  EXPECT_TRUE(gradients[0].is_same(two.parameters[1].grad()));
}

TEST(StageOptimizers, RefuseWhatOnlyTheDeviceCouldDo) {
  TwoStages two;
  EXPECT_FALSE(two.optimizer->can_skip_on_device());
  two.optimizer->set_capturable(false);
  EXPECT_THAT(message_of<ConfigError>([&] { two.optimizer->set_capturable(true); }),
              HasSubstr("Trainer: this optimizer counts its steps on the host"));
  EXPECT_THROW(two.optimizer->step_unless(torch::zeros({})), InternalError);
}

// Their own waits come on top of those of the stages.
TEST(StageOptimizers, HaveWaitedAsLongAsAllStagesTogether) {
  const auto waiting_for = [](const std::vector<double>& seconds, std::optional<StageRanks> ranks) {
    std::vector<StageOptimizer> stages;
    for (const double each : seconds) {
      stages.push_back(
          {.optimizer = std::make_unique<BreakableOptimizer>(false, each), .parameters = {}});
    }
    return make_stage_optimizers(std::move(stages), SgdOptions(), std::move(ranks));
  };
  EXPECT_EQ(waiting_for({}, std::nullopt)->communication_seconds(), 0);
  EXPECT_EQ(waiting_for({1, 2, 4}, std::nullopt)->communication_seconds(), 7);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const auto optimizer = waiting_for({1, 2, 4}, StageRanks{.pipeline = group, .all = group});
    double before = optimizer->communication_seconds();
    LOCKSTEP_CHECK(before == 7, before);
    for (int time = 0; time < 2; ++time) {
      optimizer->clip_grad_norm(1);  // the ranks exchange their norms
      const double now = optimizer->communication_seconds();
      LOCKSTEP_CHECK(now > before, time, ' ', now);
      before = now;
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(StageOptimizers, FindTheParameterOfAState) {
  EXPECT_EQ(parameter_of_state("exp_avg.layer1.0.conv1.weight"), "layer1.0.conv1.weight");
  EXPECT_EQ(parameter_of_state("step.weight"), "weight");
}

}  // namespace
}  // namespace lockstep::train
