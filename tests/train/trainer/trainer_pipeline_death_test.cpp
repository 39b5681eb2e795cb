// Strategies pipeline and hybrid when a rank cannot start, or fails or dies during training.
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/train/trainer.h>
#include <tests/support/groups.h>
#include <tests/support/immovable.h>
#include <tests/support/messages.h>
#include <tests/support/moment.h>
#include <tests/support/survivors.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::Moment;
using testing_support::run_group;
using testing_support::run_group_processes;
using testing_support::Survivors;

// The staged net with a hook: `before` runs before each forward of each of its stages.
ClassificationTask interrupted_task(const std::function<void()>& before) {
  const torch::nn::Sequential net = make_staged_net();
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy, [net, before](int stages) {
    std::vector<pipeline::StageModule> interrupted;
    for (const pipeline::StageModule& stage : cut_staged_net(net, {}, stages)) {
      interrupted.emplace_back(stage.module().shared_from_this(),
                               [stage, before](const Tensors& inputs) -> Tensors {
                                 before();
                                 return stage.forward(inputs);
                               });
    }
    return interrupted;
  });
}

// The staged net with one more layer, which cannot be moved or read.
ClassificationTask immovable_task() {
  torch::nn::Sequential net = make_staged_net();
  net->push_back(testing_support::Immovable());
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {5, 4})); });
}

// Returns its input and never uses its parameter.
struct IdleLayerImpl : torch::nn::Module {
  IdleLayerImpl() { register_parameter("idle", torch::zeros({3})); }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};
TORCH_MODULE(IdleLayer);

// The staged net with one more layer, whose parameter receives no gradient.
ClassificationTask idle_task() {
  torch::nn::Sequential net = make_staged_net();
  net->push_back(IdleLayer());
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {5, 4})); });
}

// Three stages. The first and the last one share a layer. `before` runs before a gradient is added
// to a weight that only the first stage has.
ClassificationTask task_with_tied_ends(const std::function<void()>& before) {
  const torch::nn::Linear shared(16, 16);
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 16));
  net->push_back(shared);
  net->push_back(torch::nn::Linear(16, 16));
  net->push_back(shared);
  net->parameters().front().register_hook([before](const torch::Tensor&) -> void { before(); });
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {3, 1, 1})); });
}

ClassificationTask whole_task() { return make_staged_task(make_staged_net()); }

// The staged net without cuts.
ClassificationTask task_without_room() {
  return ClassificationTask(make_staged_net(), ClassificationLoss::kCrossEntropy,
                            [](int) -> std::vector<pipeline::StageModule> {
                              throw DataError("there is no room for the stages");
                            });
}

// Trains until an error and checks it against the time in `moment`, which other ranks mark. Keeps
// the trainer until all ranks have their error, so that none fails only because another rank
// exited.
void train_until_the_end(const ProcessGroup& group, const std::string& strategy_name,
                         const std::function<ClassificationTask()>& make_task, const Moment& moment,
                         Survivors& survivors, const OptimizerOptions& optimizer = SgdOptions(),
                         int stages = 2, Listener* listener = nullptr) {
  at::set_num_threads(1);
  ClassificationTask task = make_task();
  auto strategy = make_strategy(strategy_name, group, {.stages = stages, .micro_batches = 2});
  const DataShare share = strategy->data_share();
  Loader loader(train_images(),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = kGlobalBatch / share.size});
  TrainerOptions many_epochs = options(1'000'000);
  many_epochs.optimizer = optimizer;
  if (listener != nullptr) many_epochs.listeners = {listener};
  Trainer trainer(many_epochs, std::move(strategy));
  try {
    trainer.fit(task, loader);
  } catch (const std::exception& error) {
    const bool in_time = moment.seconds_ago() < 2;
    survivors.wait_for_all();
    throw Error(str(error.what(), in_time ? " in time" : " late"));
  }
}

struct TrainerBeginning {
  const char* name;
  const char* strategy;
  int ranks;
  ClassificationTask (*task_of_last)();
  const char* text;
  double lr_of_last = 0.01;
};

void PrintTo(const TrainerBeginning& beginning, std::ostream* out) { *out << beginning.name; }

class TrainerPipelineBeginnings : public testing::TestWithParam<TrainerBeginning> {};
INSTANTIATE_TEST_SUITE_P(
    Ranks, TrainerPipelineBeginnings,
    testing::Values(
        TrainerBeginning{"PipelineUncut", "pipeline", 2, task_without_room, "there is no room"},
        TrainerBeginning{"HybridUncut", "hybrid", 4, task_without_room, "there is no room"},
        TrainerBeginning{"PipelineImmovable", "pipeline", 2, immovable_task, "meta tensor"},
        TrainerBeginning{"HybridImmovable", "hybrid", 4, immovable_task, "meta tensor"},
        TrainerBeginning{"PipelineWithoutOptimizer", "pipeline", 2, whole_task, "lr must be", -1},
        TrainerBeginning{"HybridWithoutOptimizer", "hybrid", 4, whole_task, "lr must be", -1}),
    [](const auto& info) { return info.param.name; });

// The last rank cannot make its stages or their optimizer. Meanwhile the others wait for it in the
// group of all ranks, of its pipeline, or of the ranks with the same stage.
TEST_P(TrainerPipelineBeginnings, EndOnAllRanksWhereOneFails) {
  const TrainerBeginning beginning = GetParam();
  Moment begun;
  begun.mark();
  Survivors all(beginning.ranks);
  const auto errors = run_group(beginning.ranks, "shm", [&](const ProcessGroup& group) {
    const bool last = group.rank() == group.size() - 1;
    train_until_the_end(group, beginning.strategy, last ? beginning.task_of_last : whole_task,
                        begun, all, SgdOptions{.lr = last ? beginning.lr_of_last : 0.01});
  });
  EXPECT_LT(begun.seconds_ago(), 10);  // an abandoned wait would take thirty seconds
  EXPECT_THAT(errors, Each(HasSubstr(beginning.text)));
}

struct TrainerDeath {
  const char* name;
  const char* strategy;
  const char* backend;
  int ranks;
  int victim;
};

void PrintTo(const TrainerDeath& death, std::ostream* out) { *out << death.name; }

class TrainerPipelineDeaths : public testing::TestWithParam<TrainerDeath> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainerPipelineDeaths,
                         testing::Values(TrainerDeath{"PipelineOverShm", "pipeline", "shm", 2, 1},
                                         TrainerDeath{"PipelineOverGloo", "pipeline", "gloo", 2, 1},
                                         TrainerDeath{"HybridOverShm", "hybrid", "shm", 4, 3},
                                         TrainerDeath{"HybridOverGloo", "hybrid", "gloo", 4, 2}),
                         [](const auto& info) { return info.param.name; });

TEST_P(TrainerPipelineDeaths, AreNamedByAllOtherRanksWithinTwoSeconds) {
  const TrainerDeath death = GetParam();
  Moment killed;
  Survivors survivors(death.ranks - 1);
  const auto errors = run_group_processes(death.ranks, death.backend, [&](ProcessGroup group) {
    int forwards = 0;
    const auto die = [&] {
      if (group.rank() != death.victim || ++forwards != 61) return;
      killed.mark();
      raise(SIGKILL);
    };
    train_until_the_end(
        group, death.strategy, [&] { return interrupted_task(die); }, killed, survivors);
  });
  for (int rank = 0; rank < death.ranks; ++rank) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    if (rank == death.victim) {
      EXPECT_EQ(error, "killed by signal 9");
    } else {
      EXPECT_THAT(error, AllOf(HasSubstr(str("rank ", death.victim)), HasSubstr("died"),
                               HasSubstr(" in time")))
          << "rank " << rank;
    }
  }
}

// The other pipeline's ranks wait for gradients of the failed one, so that they must be told as
// well.
class TrainerHybridFailures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TrainerHybridFailures, testing::Values("shm", "gloo"));

TEST_P(TrainerHybridFailures, EndAllPipelinesWithTheWordsOfTheOneThatFailed) {
  Moment failed;
  Survivors all(4);
  const auto errors = run_group(4, GetParam(), [&](ProcessGroup group) {
    int forwards = 0;
    const auto fail = [&] {
      if (group.rank() != 1 || ++forwards != 31) return;
      failed.mark();
      throw DataError("the stage is broken");
    };
    train_until_the_end(group, "hybrid", [&] { return interrupted_task(fail); }, failed, all);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the stage is broken"), HasSubstr(" in time"))));
  EXPECT_THAT(errors[1], HasSubstr("worker 1 failed in stage 1 at 1F"));
}

// Rank 0 fails between two steps, when the others have begun the next one. They wait for its
// messages or for its stages' gradients.
struct TrainerListenerFailure {
  const char* strategy;
  int ranks;
};

void PrintTo(const TrainerListenerFailure& failure, std::ostream* out) { *out << failure.strategy; }

class TrainerListenerFailures : public testing::TestWithParam<TrainerListenerFailure> {};
INSTANTIATE_TEST_SUITE_P(Strategies, TrainerListenerFailures,
                         testing::Values(TrainerListenerFailure{"ddp", 2},
                                         TrainerListenerFailure{"pipeline", 2},
                                         TrainerListenerFailure{"hybrid", 4}),
                         [](const auto& info) { return std::string(info.param.strategy); });

TEST_P(TrainerListenerFailures, AreToldToAllRanks) {
  Moment failed;
  struct Failing final : Listener {
    explicit Failing(Moment& moment) : failed(moment) {}
    void on_step(const StepReport& report) override {
      if (report.step != 3) return;
      failed.mark();
      throw DataError("the disk is full");
    }
    Moment& failed;
  } listener(failed);
  Survivors all(GetParam().ranks);
  const auto errors = run_group(GetParam().ranks, "shm", [&](const ProcessGroup& group) {
    train_until_the_end(group, GetParam().strategy, whole_task, failed, all, SgdOptions(),
                        /*stages=*/2, &listener);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the disk is full"), HasSubstr(" in time"))));
}

// The first stage's last backward of a step fails. Meanwhile the last stage waits for it in the
// group of the two ranks with the tied weight, and the middle stage waits for the loss.
class TrainerTieFailures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TrainerTieFailures, testing::Values("shm", "gloo"));

TEST_P(TrainerTieFailures, EndTheRanksThatWaitForTheGradientOfACopy) {
  Moment failed;
  Survivors all(3);
  const auto errors = run_group(3, GetParam(), [&](const ProcessGroup& group) {
    int gradients = 0;
    const auto fail = [&] {
      if (++gradients != 6) return;  // the second micro-batch of the third step
      failed.mark();
      throw DataError("the gradient is broken");
    };
    train_until_the_end(
        group, "pipeline", [&] { return task_with_tied_ends(fail); }, failed, all, SgdOptions(),
        /*stages=*/3);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the gradient is broken"), HasSubstr(" in time"))));
  EXPECT_THAT(errors[0], HasSubstr("worker 0 failed in stage 0 at 0B1"));
}

// The second stages detect it before their first reduction, while the first ones wait for the loss.
TEST(TrainerIdleParameterFailures, HybridNamesTheParameterOnAllRanks) {
  Moment begun;
  begun.mark();
  Survivors all(4);
  const auto errors = run_group(4, "shm", [&](const ProcessGroup& group) {
    train_until_the_end(group, "hybrid", idle_task, begun, all);
  });
  EXPECT_LT(begun.seconds_ago(), 10);  // an abandoned wait would take thirty seconds
  EXPECT_THAT(errors, Each(HasSubstr("strategy hybrid: parameter '8.idle' received no gradient; "
                                     "freeze it before training")));
}

// The first forward takes longer than the second stage's timeout.
TEST(TrainerPipelineThreads, WaitForEachOtherAsLongAsTheOptionsSay) {
  std::atomic<int> forwards = 0;
  ClassificationTask task = interrupted_task([&] {
    if (forwards++ == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  });
  const StrategyOptions two_stages{
      .stages = 2, .micro_batches = 2, .timeout = std::chrono::milliseconds(100)};
  Loader loader = train_loader(group_of_one());
  Trainer trainer(options(1), make_strategy("pipeline", group_of_one(), two_stages));
  EXPECT_THAT(message_of<TimeoutError>([&] { trainer.fit(task, loader); }),
              AllOf(HasSubstr("in stage 1 at 1RECV_F0"), HasSubstr("waited 100 ms")));
}

}  // namespace
}  // namespace lockstep::train
