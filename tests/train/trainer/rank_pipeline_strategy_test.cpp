// The strategies pipeline and hybrid on ranks, step by step without a Trainer.
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/train/trainer.h>
#include <tests/support/groups.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing_support::no_errors;
using testing_support::run_group;

// A strategy whose pipelines have two workers.
struct RankWay {
  const char* strategy;
  int replicas;
  StrategyOptions options;
  int last_worker;  // the worker of the last stage
  int units;        // the stages of each worker
};

std::vector<RankWay> rank_ways() {
  const StrategyOptions two{.stages = 2};
  const StrategyOptions four{.stages = 4, .schedule = Schedule::kZbV};
  return {{"pipeline", 1, two, 1, 1},
          {"pipeline", 1, four, 0, 2},
          {"hybrid", 2, two, 1, 1},
          {"hybrid", 2, four, 0, 2}};
}

// A batch that is the same on all ranks.
Batch fixed_batch() {
  return {
      .images = torch::arange(8 * 28 * 28, torch::kFloat32).mul(0.37).sin().view({8, 1, 28, 28}),
      .labels = torch::arange(8, torch::kInt64),
      .size = 8};
}

torch::Tensor plain_loss(torch::nn::Sequential& net) {
  const Batch batch = fixed_batch();
  return torch::cross_entropy_loss(net->forward(batch.images), batch.labels);
}

constexpr double kRate = 0.5;

// The parts of a training loop on one rank.
struct RankLoop {
  RankLoop(const RankWay& way, const ProcessGroup& group, const StagedNetOptions& net_options = {})
      : net(make_staged_net(net_options)),
        task(make_staged_task(net, net_options)),
        strategy(make_strategy(way.strategy, group, way.options)) {}

  void attach() {
    strategy->place(*net, torch::kCPU);
    strategy->attach(task, {.device = torch::kCPU});
    optimizer = strategy->make_optimizer(SgdOptions{.lr = kRate});
  }
  // Returns the loss of the last of the parts.
  torch::Tensor step(int parts) {
    optimizer->zero_grad();
    torch::Tensor loss;
    for (int part = 0; part < parts; ++part) {
      loss = strategy->step(fixed_batch(), {.weight = 1.0 / parts, .is_last = part + 1 == parts},
                            phases);
    }
    optimizer->step();
    return loss;
  }

  torch::nn::Sequential net;
  ClassificationTask task;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<RunOptimizer> optimizer{};
  PhaseSeconds phases{};
};

void run_way(const RankWay& way, const std::function<void(ProcessGroup group)>& body) {
  const int ranks = 2 * way.replicas;
  const auto errors = run_group(ranks, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    body(group);
    group.barrier();  // the other ranks may still need the store of rank 0
  });
  EXPECT_EQ(errors, no_errors(ranks)) << way.strategy << way.options.stages;
}

// One rank of each pipeline, that of the last stage, adds the share to the sums.
TEST(RankPipelines, KnowWhichShareOfTheDataARankTrainsOn) {
  for (const RankWay& way : rank_ways()) {
    run_way(way, [&](ProcessGroup group) {
      const RankLoop loop(way, group);
      const DataShare share = loop.strategy->data_share();
      EXPECT_EQ(share.rank, group.rank() / 2);
      EXPECT_EQ(share.size, way.replicas);
      EXPECT_EQ(share.counts, group.rank() % 2 == way.last_worker);
      EXPECT_FALSE(loop.strategy->module_is_current());
      EXPECT_FALSE(loop.strategy->module_has_gradients());
      EXPECT_EQ(loop.strategy->synchronization_seconds(), 0) << "nothing has been sent yet";
    });
  }
}

TEST(RankPipelines, BeginWithTheParametersAndBuffersOfRankZero) {
  const StagedNetOptions with_norm{.norm = true};
  for (const RankWay& way : rank_ways()) {
    run_way(way, [&](ProcessGroup group) {
      RankLoop loop(way, group, with_norm);
      {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& parameter : loop.net->parameters()) parameter.mul_(group.rank() + 1);
        for (torch::Tensor& buffer : loop.net->buffers()) buffer.add_(group.rank());
      }
      loop.attach();
      EXPECT_GT(loop.strategy->synchronization_seconds(), 0);
      const torch::nn::Sequential expected = make_staged_net(with_norm);
      expect_equal_bits(state_dict(*loop.net), state_dict(*expected));
    });
  }
}

// All ranks learn the loss of their pipeline. Rank 0's module gets what all ranks have trained.
TEST(RankPipelines, StepLikeOneProcess) {
  for (const int parts : {1, 2}) {
    torch::nn::Sequential plain = make_staged_net();
    const torch::Tensor expected_loss = plain_loss(plain);
    expected_loss.backward();
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : plain->parameters()) parameter.sub_(kRate * parameter.grad());
    }
    for (const RankWay& way : rank_ways()) {
      run_way(way, [&](ProcessGroup group) {
        RankLoop loop(way, group);
        loop.attach();
        const torch::Tensor loss = loop.step(parts);
        EXPECT_EQ(loss.dim(), 0);
        EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
        EXPECT_FALSE(loss.requires_grad());
        EXPECT_NEAR(loss.item<double>(), expected_loss.item<double>(), 1e-5) << parts;
        loop.strategy->gather_module();
        if (group.rank() != 0) return;
        const StateDict got = state_dict(*loop.net), expected = state_dict(*plain);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(torch::allclose(got[i].second, expected[i].second, 1e-4, 1e-5))
              << got[i].first << " with " << parts << " parts";
        }
      });
    }
  }
}

// The normalisation is in the first of two stages and in the second of four.
TEST(RankPipelines, GatherTheBuffersOfAllStages) {
  const StagedNetOptions with_norm{.norm = true};
  for (const RankWay& way : rank_ways()) {
    run_way(way, [&](ProcessGroup group) {
      RankLoop loop(way, group, with_norm);
      loop.attach();
      for (torch::Tensor& buffer : loop.net->buffers()) buffer.fill_(10 + group.rank());
      loop.strategy->gather_module();
      if (group.rank() != 0) return;
      const int owner = way.options.stages == 2 ? 0 : 1;
      ASSERT_EQ(loop.net->buffers().size(), 3U);
      for (const auto& buffer : loop.net->named_buffers()) {
        EXPECT_TRUE(buffer.value().equal(torch::full_like(buffer.value(), 10 + owner)))
            << buffer.key();
      }
    });
  }
}

// The ranks that reduce the same stages use the same names, and no other ranks do.
TEST(RankPipelines, NameTheirReductionsByWorkerAndUnit) {
  for (const RankWay& way : rank_ways()) {
    run_way(way, [&](ProcessGroup group) {
      RankLoop loop(way, group);
      loop.attach();
      for (int step = 0; step < 2; ++step) loop.step(/*parts=*/1);
      std::set<std::string> names;
      for (const Span& span : loop.strategy->spans()) {
        if (!span.collective.empty()) names.insert(span.collective);
      }
      const std::string worker = str("worker ", group.rank() % 2, " unit ");
      if (way.replicas == 1) {
        EXPECT_TRUE(names.empty()) << "a single pipeline reduces nothing";
        return;
      }
      for (const std::string& name : names) EXPECT_THAT(name, StartsWith(worker));
      for (int unit = 0; unit < 3; ++unit) {
        EXPECT_EQ(names.contains(str(worker, unit, " step 2 bucket 0")), unit < way.units) << unit;
      }
    });
  }
}

// Where a rank of a pipeline fails alone.
enum class FailsIn { kCut, kLoss, kEvaluation };

// Fails on some ranks.
class FailingTask final : public ClassificationTask {
 public:
  FailingTask(const torch::nn::Sequential& net, FailsIn where, bool fails)
      : ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                           [=](int stages) {
                             if (fails && where == FailsIn::kCut) throw Error("the task is broken");
                             return cut_staged_net(net, {}, stages);
                           }),
        where_(where),
        fails_(fails) {}
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    if (fails_ && where_ == FailsIn::kLoss) throw Error("the task is broken");
    return ClassificationTask::loss(output, labels);
  }
  void evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                Metrics& metrics) const override {
    if (fails_ && where_ == FailsIn::kEvaluation) throw Error("the task is broken");
    ClassificationTask::evaluate(output, labels, metrics);
  }

 private:
  const FailsIn where_;
  const bool fails_;
};

// The ranks that wait for it, in whatever group, end instead of waiting for their deadline. Those
// that still connect lose the store if rank 0 has ended. The failing rank is that of the last stage
// in the first pipeline.
TEST(RankPipelines, AFailureOfOneRankEndsTheOthers) {
  for (const FailsIn where : {FailsIn::kCut, FailsIn::kLoss, FailsIn::kEvaluation}) {
    for (const RankWay& way : rank_ways()) {
      const int ranks = 2 * way.replicas;
      const auto errors = run_group(ranks, "shm", [&](ProcessGroup group) {
        at::set_num_threads(1);
        torch::nn::Sequential net = make_staged_net();
        FailingTask task(net, where, group.rank() == way.last_worker);
        const auto strategy = make_strategy(way.strategy, group, way.options);
        strategy->place(*net, torch::kCPU);
        strategy->attach(task, {.device = torch::kCPU});
        const auto optimizer = strategy->make_optimizer(SgdOptions{.lr = kRate});
        PhaseSeconds phases;
        optimizer->zero_grad();
        strategy->step(fixed_batch(), {.weight = 1, .is_last = true}, phases);
        optimizer->step();
        const torch::NoGradGuard no_grad;
        Metrics metrics;
        strategy->begin_evaluation();
        strategy->evaluate(fixed_batch(), metrics);
        group.barrier();
      });
      EXPECT_THAT(errors, AllOf(Each(Not(IsEmpty())), Contains(HasSubstr("the task is broken"))))
          << way.strategy << way.options.stages << ", " << static_cast<int>(where);
    }
  }
}

// A strategy may serve several runs. The first one has communicated for longer than the step of the
// second.
TEST(ReplicasOnRanks, CountOnlyTheCommunicationOfTheirRun) {
  const auto errors = run_group(2, "gloo", [](ProcessGroup group) {
    at::set_num_threads(1);
    RankLoop loop({"ddp", 1, {}, 0, 1}, group);
    loop.attach();
    for (int step = 0; step < 10; ++step) loop.step(/*parts=*/1);
    EXPECT_GT(loop.phases.communication, 0);
    loop.attach();
    loop.phases = {};
    loop.step(/*parts=*/1);
    EXPECT_GE(loop.phases.communication, 0);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(PipelineStrategies, DescribeTheirPipelines) {
  const StrategyOptions four{
      .stages = 4, .micro_batches = 3, .schedule = Schedule::kZbV, .recompute = true};
  const torch::nn::Sequential net = make_staged_net();
  ClassificationTask task = make_staged_task(net);
  const auto strategy = make_strategy("pipeline", group_of_one(), four);
  strategy->attach(task, {});
  RunInfo info;
  strategy->describe(info);
  EXPECT_EQ(strategy->name(), "pipeline");
  EXPECT_EQ(info.stages, 4);
  EXPECT_EQ(info.workers, 2) << "each has two stages";
  EXPECT_EQ(info.micro_batches, 3);
  EXPECT_EQ(info.schedule, "zbv");
  EXPECT_TRUE(info.recompute);
  EXPECT_EQ(info.cuts, (std::vector<std::string>{"1", "3", "5"}));
  EXPECT_THAT(info.whole_backward, IsEmpty());
  EXPECT_TRUE(strategy->has_all_processors());
  const auto alone = make_strategy("pipeline", group_of_one(), {.stages = 1});
  alone->attach(task, {});
  EXPECT_FALSE(alone->has_all_processors()) << "with a single worker";
}

// Only a schedule that splits backwards makes a difference to them.
TEST(PipelineStrategies, NameTheStagesWhoseBackwardIsNotSplit) {
  const torch::nn::Sequential net = make_staged_net();
  ClassificationTask task(net, ClassificationLoss::kCrossEntropy, [net](int stages) {
    auto modules = cut_staged_net(net, {}, stages);
    const pipeline::StageModule second = modules.at(1);
    modules[1] = pipeline::StageModule(
        second.module().shared_from_this(),
        [second](const Tensors& inputs) { return second.forward(inputs); },
        /*has_whole_backward=*/true);
    return modules;
  });
  for (const Precision precision : {Precision::k32, Precision::kBf16}) {
    for (const Schedule schedule : {Schedule::kZbH1, Schedule::k1F1B}) {
      const auto strategy =
          make_strategy("pipeline", group_of_one(), {.stages = 2, .schedule = schedule});
      strategy->attach(task, {.precision = precision});
      RunInfo info;
      strategy->describe(info);
      EXPECT_EQ(info.whole_backward,
                schedule == Schedule::kZbH1 ? std::vector<int>{1} : std::vector<int>())
          << to_string(precision);
    }
  }
}

}  // namespace
}  // namespace lockstep::train
