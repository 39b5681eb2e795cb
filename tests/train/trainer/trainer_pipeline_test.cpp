// Strategies pipeline and hybrid: on threads, on ranks, and several pipelines of ranks.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::run_group_processes;
using testing_support::TemporaryDirectory;

// A way to train, and the number of ranks it needs.
struct Way {
  const char* name;
  int ranks;
  StagedRun run;
  const char* backend = "shm";
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

StrategyOptions staged(int stages, Schedule schedule = Schedule::k1F1B,
                       bool shard_optimizer = false) {
  return {.stages = stages, .schedule = schedule, .shard_optimizer = shard_optimizer};
}

const Way kSingle = {"single", 1, {.strategy = "single"}};

std::vector<Way> pipelines() {
  return {{"threads2", 1, {.strategy = "pipeline", .options = staged(2)}},
          {"threads4zbv", 1, {.strategy = "pipeline", .options = staged(4, Schedule::kZbV)}},
          {"ranks2", 2, {.strategy = "pipeline", .options = staged(2, Schedule::kZbH1)}},
          {"ranks2interleaved",
           2,
           {.strategy = "pipeline", .options = staged(4, Schedule::kInterleaved)}},
          {"ranks2zbv", 2, {.strategy = "pipeline", .options = staged(4, Schedule::kZbV)}},
          {"hybrid", 4, {.strategy = "hybrid", .options = staged(2)}},
          {"hybridGloo", 4, {.strategy = "hybrid", .options = staged(2)}, "gloo"},
          {"hybridZbv", 4, {.strategy = "hybrid", .options = staged(4, Schedule::kZbV)}},
          {"hybridSharded", 4, {.strategy = "hybrid", .options = staged(2, Schedule::k1F1B, true)}},
          {"hybridShardedGloo",
           4,
           {.strategy = "hybrid", .options = staged(2, Schedule::k1F1B, true)},
           "gloo"}};
}

// The results of a run: rank 0's report and the checkpoint that it wrote.
struct PipelineOutcome {
  RunReport report;
  StateDict state;
};

PipelineOutcome run_way(const Way& way, TrainerOptions trainer_options,
                        const std::filesystem::path& checkpoint) {
  trainer_options.checkpoints.directory = checkpoint;
  PipelineOutcome outcome;
  const auto train_rank = [&](ProcessGroup group) {
    at::set_num_threads(1);
    RunReport report = train_staged(trainer_options, group, way.run);
    if (group.rank() == 0) outcome.report = std::move(report);
  };
  if (way.ranks == 1) {
    train_rank(group_of_one());
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks)) << way.name;
  }
  outcome.state = saved_state(checkpoint, trainer_options.optimizer, way.run.net);
  return outcome;
}

PipelineOutcome run_way(const Way& way, const TrainerOptions& trainer_options) {
  const TemporaryDirectory directory;
  return run_way(way, trainer_options, directory / "checkpoints");
}

double greatest_difference(const StateDict& a, const StateDict& b) {
  double greatest = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    const torch::Tensor difference =
        a[i].second.to(torch::kFloat64) - b[i].second.to(torch::kFloat64);
    greatest = std::max(greatest, difference.abs().max().item<double>());
  }
  return greatest;
}

StateDict untrained() {
  TrainerOptions still = options(1);
  still.optimizer = SgdOptions{.lr = 0};
  still.max_steps = 1;
  still.limit_val_batches = 0;
  return run_way(kSingle, still).state;
}

class TrainerPipelines : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, TrainerPipelines, testing::ValuesIn(pipelines()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(TrainerPipelines, TrainAsOneProcess) {
  TrainerOptions adamw = options(2);
  adamw.optimizer = AdamWOptions{.lr = 1e-3, .eps = 1e-3};
  for (const TrainerOptions& each : {options(2), adamw}) {
    const PipelineOutcome outcome = run_way(GetParam(), each);
    const PipelineOutcome single = run_way(kSingle, each);
    EXPECT_LE(greatest_difference(outcome.state, single.state), 1e-5);
    const RunReport &report = outcome.report, &expected = single.report;
    ASSERT_EQ(report.epochs.size(), 2U);
    EXPECT_NEAR(report.epochs[0].train_loss, expected.epochs[0].train_loss, 1e-5);
    EXPECT_NEAR(report.test->loss, expected.test->loss, 1e-5);
    EXPECT_EQ(report.test->samples, 33);
    EXPECT_EQ(report.info.strategy, GetParam().run.strategy);
    EXPECT_EQ(report.info.world_size, GetParam().ranks);
    EXPECT_EQ(report.info.stages, GetParam().run.options.stages);
    EXPECT_EQ(report.info.micro_batches, 4);
    const bool has_four = GetParam().run.options.stages == 4;
    // A cut is named after the last linear layer before it; only an activation lies between them.
    EXPECT_EQ(report.info.cuts,
              has_four ? (std::vector<std::string>{"1", "3", "5"}) : std::vector<std::string>{"3"});
    EXPECT_EQ(report.info.parameters, expected.info.parameters);
    const PhaseSeconds& p = report.epochs[0].phases;
    EXPECT_GT(p.forward, 0);
    EXPECT_GT(p.backward, 0);
    EXPECT_GT(p.optimizer, 0);
    EXPECT_GT(p.stage_waits, 0);
    EXPECT_LE(p.stage_waits, p.communication);
    EXPECT_LE(p.data + p.forward + p.backward + p.communication + p.optimizer,
              report.epochs[0].seconds);
    EXPECT_NEAR(report.epochs[0].images_per_second * report.epochs[0].seconds, kImages, 1e-6);
  }
}

// Sleeps for ten milliseconds in its forward, and as long in its backward.
struct SlowImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
    sleep();
    if (x.requires_grad()) x.register_hook([sleep](const torch::Tensor&) { sleep(); });
    return x * 1;
  }
};
TORCH_MODULE(Slow);

// Only the first stage is slow, with four micro-batches. A rank reports its own times, and a
// process the mean over its threads.
TEST(TrainerPipelinePhases, AreThoseOfTheWorkersInTheProcess) {
  TrainerOptions one_step = options(1);
  one_step.max_steps = 1;
  one_step.limit_val_batches = 0;
  const auto phases_of = [&](const ProcessGroup& group, const char* strategy) {
    at::set_num_threads(1);
    namespace nn = torch::nn;
    const nn::Sequential net(nn::Flatten(), nn::Linear(28 * 28, 8), Slow(), nn::Linear(8, 10));
    ClassificationTask task(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {3, 1})); });
    const StagedRun run = {.strategy = strategy, .options = staged(2)};
    return train_staged(one_step, group, run, task).epochs.at(0).phases;
  };
  const PhaseSeconds thread_phases = phases_of(group_of_one(), "pipeline");
  EXPECT_GE(thread_phases.forward, 4 * 0.010 / 2);
  EXPECT_GE(thread_phases.backward, 4 * 0.010 / 2);
  PhaseSeconds of_rank;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const PhaseSeconds own = phases_of(group, "pipeline");
    if (group.rank() == 0) of_rank = own;
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_GE(of_rank.forward, 4 * 0.010);
  EXPECT_GE(of_rank.backward, 4 * 0.010);
}

// Trains twice without checkpoints and with one strategy object. Afterwards rank 0's module is the
// trained model, and the first run must not affect the second one.
StateDict trained_twice(const Way& way) {
  StateDict state;
  const auto train_rank = [&](ProcessGroup group) {
    at::set_num_threads(1);
    const torch::nn::Sequential net = make_staged_net(way.run.net);
    ClassificationTask task = make_staged_task(net, way.run.net);
    auto strategy = make_strategy(way.run.strategy, group, way.run.options);
    const DataShare share = strategy->data_share();
    Loader loader(train_images(),
                  DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                  kNormalize, {.batch_size = kGlobalBatch / share.size});
    Trainer trainer(options(1), std::move(strategy));
    trainer.fit(task, loader);
    trainer.fit(task, loader);
    if (group.rank() == 0) state = state_dict(*net);
  };
  if (way.ranks == 1) {
    train_rank(group_of_one());
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks)) << way.name;
  }
  return state;
}

TEST_P(TrainerPipelines, TrainTwice) {
  EXPECT_LE(greatest_difference(trained_twice(GetParam()), trained_twice(kSingle)), 1e-5);
}

TEST(TrainerReplicas, TrainTwice) {
  const StateDict single = trained_twice(kSingle);
  for (const char* strategy : {"ddp", "zero1"}) {
    EXPECT_LE(greatest_difference(trained_twice({strategy, 2, {.strategy = strategy}}), single),
              1e-5)
        << strategy;
  }
}

TEST_P(TrainerPipelines, AccumulateGradients) {
  Way way = GetParam();
  way.run.global_batch = kGlobalBatch / 2;
  TrainerOptions two = options(1);
  two.accumulate_grad_batches = 2;
  EXPECT_LE(greatest_difference(run_way(way, two).state, run_way(kSingle, options(1)).state), 1e-5);
}

TEST_P(TrainerPipelines, ClipByTheNormOfAllStages) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  clipped.limit_val_batches = 0;
  clipped.max_steps = 1;
  EXPECT_NEAR(distance(run_way(GetParam(), clipped).state, untrained()), 0.5 * 0.01, 1e-5);
  clipped.max_steps.reset();
  EXPECT_LE(
      greatest_difference(run_way(GetParam(), clipped).state, run_way(kSingle, clipped).state),
      1e-5);
}

TEST_P(TrainerPipelines, ScaleTheLossInFloat16) {
  TrainerOptions half = options(1);
  half.precision = Precision::kFp16;
  half.limit_val_batches = 0;
  half.optimizer = SgdOptions{.lr = 0.05};
  // The first step overflows on some ranks and must be skipped on all of them.
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-9};
  half.max_steps = 1;
  EXPECT_EQ(greatest_difference(run_way(GetParam(), half).state, untrained()), 0);
  half.max_steps.reset();
  const StateDict single = run_way(kSingle, half).state;
  const double trained = distance(single, untrained());
  EXPECT_GT(trained, 1e-3);
  EXPECT_LT(distance(run_way(GetParam(), half).state, single), 0.1 * trained);
}

TEST_P(TrainerPipelines, ComputeInBfloat16) {
  TrainerOptions half = options(1);
  half.precision = Precision::kBf16;
  half.optimizer = SgdOptions{.lr = 0.05};
  const StateDict single = run_way(kSingle, half).state;
  const double trained = distance(single, untrained());
  EXPECT_LT(distance(run_way(GetParam(), half).state, single), 0.1 * trained);
  // The comparison is meaningful only if float32 gives a different result.
  TrainerOptions full = half;
  full.precision = Precision::k32;
  EXPECT_GT(greatest_difference(run_way(GetParam(), half).state, run_way(GetParam(), full).state),
            1e-6);
}

// An epoch of 110 images in batches of 36 ends with two images, one for each of two pipelines,
// which would cut their batches in four.
TEST_P(TrainerPipelines, TakeBatchesThatAreSmallerThanTheirMicroBatches) {
  Way way = GetParam();
  way.run.global_batch = 36;
  Way single = kSingle;
  single.run.global_batch = 36;
  EXPECT_LE(greatest_difference(run_way(way, options(2)).state, run_way(single, options(2)).state),
            1e-5);
}

TEST_P(TrainerPipelines, GoOnExactly) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.optimizer = AdamOptions{.amsgrad = true};
  const PipelineOutcome whole = run_way(GetParam(), run);
  run.max_steps = 8;  // stop in the middle of the second epoch
  run_way(GetParam(), run, directory / "checkpoints");
  run.max_steps.reset();
  run.resume = true;
  const PipelineOutcome resumed = run_way(GetParam(), run, directory / "checkpoints");
  EXPECT_EQ(resumed.report.info.first_epoch, 2);
  EXPECT_EQ(greatest_difference(resumed.state, whole.state), 0);
  EXPECT_EQ(resumed.report.test->loss, whole.report.test->loss);
}

// A run started by any of `firsts` and resumed by any of `seconds` ends like that of one process.
void expect_to_go_on(const std::vector<Way>& firsts, const std::vector<Way>& seconds) {
  TrainerOptions run = options(2);
  run.schedule = {};
  run.optimizer = AdamWOptions{.lr = 1e-3, .eps = 1e-3};
  const StateDict whole = run_way(kSingle, run).state;
  for (const Way& first : firsts) {
    for (const Way& second : seconds) {
      const TemporaryDirectory directory;
      TrainerOptions part = run;
      part.max_steps = 4;
      run_way(first, part, directory / "checkpoints");
      part.max_steps.reset();
      part.resume = true;
      const StateDict resumed = run_way(second, part, directory / "checkpoints").state;
      EXPECT_LE(greatest_difference(resumed, whole), 1e-5) << first.name << " to " << second.name;
    }
  }
}

// Checkpoints do not depend on the division into stages that wrote them.
TEST(TrainerPipelineCheckpoints, GoOnAtAnySplit) {
  const Way hybrid = {"hybrid", 4, {.strategy = "hybrid", .options = staged(2)}};
  const Way sharded = {
      "sharded", 4, {.strategy = "hybrid", .options = staged(2, Schedule::k1F1B, true)}};
  expect_to_go_on({hybrid, sharded, kSingle},
                  {kSingle,
                   hybrid,
                   sharded,
                   {"ddp", 2, {.strategy = "ddp"}},
                   {"zero1", 2, {.strategy = "zero1"}},
                   {"threads", 1, {.strategy = "pipeline", .options = staged(4)}},
                   {"ranks", 2, {.strategy = "pipeline", .options = staged(4, Schedule::kZbV)}},
                   {"hybridZbv", 4, {.strategy = "hybrid", .options = staged(4, Schedule::kZbV)}}});
}

TEST(TrainerPipelineCheckpoints, GoOnFromPipelinesAndReplicas) {
  const std::vector<torch::Device> cpus(2, torch::kCPU);
  expect_to_go_on({{"threads2", 1, {.strategy = "pipeline", .options = staged(2)}},
                   {"ranks2", 2, {.strategy = "pipeline", .options = staged(2, Schedule::kZbH1)}},
                   {"dp", 1, {.strategy = "dp", .options = {.devices = cpus}}}},
                  {kSingle,
                   {"threads4", 1, {.strategy = "pipeline", .options = staged(4)}},
                   {"ranks4", 4, {.strategy = "pipeline", .options = staged(4)}}});
}

TEST(TrainerPipelineCheckpoints, NameTheMicroBatches) {
  StrategyOptions strategy_options = staged(2);
  const auto four = make_strategy("pipeline", group_of_one(), strategy_options);
  EXPECT_EQ(four->batch_parts(), "4 micro-batches");
  strategy_options.micro_batches = 1;
  const auto one = make_strategy("pipeline", group_of_one(), strategy_options);
  EXPECT_EQ(one->batch_parts(), "1 micro-batch");
}

// All schedules, on threads and ranks, give the bits of one process that accumulates the
// micro-batches.
TEST(TrainerPipelineBits, AreThoseOfEverySplit) {
  TrainerOptions one = options(1);
  const Way threads = {"threads", 1, {.strategy = "pipeline", .options = staged(1)}};
  const StateDict expected = run_way(threads, one).state;
  for (const Way& way : pipelines()) {
    if (way.run.strategy != "pipeline") continue;
    EXPECT_EQ(greatest_difference(run_way(way, one).state, expected), 0) << way.name;
  }
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZbH1}) {
    const Way way = {"threads4", 1, {.strategy = "pipeline", .options = staged(4, schedule)}};
    EXPECT_EQ(greatest_difference(run_way(way, one).state, expected), 0) << schedule_name(schedule);
  }
}

// The reductions add the same values in the same order, whether or not the optimizer's state is
// sharded.
TEST(TrainerHybrid, ShardsItsOptimizerWithoutADifference) {
  const Way plain = {"plain", 4, {.strategy = "hybrid", .options = staged(2)}};
  const Way sharded = {
      "sharded", 4, {.strategy = "hybrid", .options = staged(2, Schedule::k1F1B, true)}};
  EXPECT_EQ(
      greatest_difference(run_way(sharded, options(2)).state, run_way(plain, options(2)).state), 0);
}

// The running statistics are those of the first replica, and evaluation uses them on all ranks.
// That includes a stage without trainable parameters, which takes part in no reduction.
class TrainerHybridNorms : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FrozenBegin, TrainerHybridNorms, testing::Bool());

TEST_P(TrainerHybridNorms, EvaluateTheNetThatTheySave) {
  const TemporaryDirectory directory;
  Way way = {"hybrid",
             4,
             {.strategy = "hybrid",
              .options = staged(2),
              .net = {.norm = true, .frozen_begin = GetParam()}}};
  way.run.options.micro_batches = 2;  // batch normalisation needs two samples
  const PipelineOutcome outcome = run_way(way, options(1), directory / "checkpoints");
  torch::nn::Sequential net = make_staged_net(way.run.net);
  const Optimizer optimizer(*net, options(1).optimizer);
  load_checkpoint(directory / "checkpoints", *net, optimizer.state(), "digits");
  net->eval();
  ClassificationTask task = make_staged_task(net);
  const torch::NoGradGuard no_grad;
  MetricSums sums;
  const auto images = test_loader(group_of_one());
  for (const Batch& batch : *images) task.evaluation_step(batch, sums);
  EXPECT_NEAR(outcome.report.test->loss, sums.mean().loss, 1e-5);
  EXPECT_EQ(outcome.report.test->samples, sums.mean().samples);
}

// Processes have separate generators, so that dropout must depend only on the seeds of the step.
TEST(TrainerPipelineProcesses, DrawTheRandomNumbersOfThreads) {
  const TemporaryDirectory directory;
  const StagedNetOptions with_dropout{.dropout = true};
  const auto errors = run_group_processes(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    TrainerOptions run = options(1);
    run.checkpoints.directory = directory / "ranks";
    train_staged(run, group, {.strategy = "pipeline", .options = staged(2), .net = with_dropout});
    if (group.rank() != 0) return;
    run.checkpoints.directory = directory / "threads";
    train_staged(run, group_of_one(),
                 {.strategy = "pipeline", .options = staged(2), .net = with_dropout});
    const StateDict of_ranks = saved_state(directory / "ranks", run.optimizer, with_dropout);
    const StateDict thread_state = saved_state(directory / "threads", run.optimizer, with_dropout);
    for (std::size_t i = 0; i < of_ranks.size(); ++i) {
      LOCKSTEP_CHECK(of_ranks[i].second.equal(thread_state[i].second), "another ",
                     of_ranks[i].first);
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Invalid combinations are rejected at the start.
TEST(TrainerPipelineRefusals, NameWhatCannotWork) {
  struct Case {
    const char* strategy;
    int ranks;
    StrategyOptions options;
    const char* text;
  };
  const Case cases[] = {
      {"pipeline", 3, staged(2), "strategy pipeline: 2 stages by the schedule 1f1b need 2 ranks"},
      {"pipeline", 4, staged(2), "use strategy hybrid"},
      {"hybrid", 3, staged(2), "strategy hybrid: 2 stages by the schedule 1f1b need 2 ranks"},
      {"hybrid", 2, staged(3, Schedule::kZbV), "the schedule zbv has 2 stages on each worker"},
      {"pipeline", 2, {.stages = 2, .shard_optimizer = true}, "belongs to strategy hybrid"},
      {"pipeline", 2, {.stages = 2, .micro_batches = 0}, "micro_batches must be at least 1"},
      {"pipeline", 1, {.stages = 2, .sync_batchnorm = true}, "belongs to ddp and zero1"},
      {"hybrid", 4, {.stages = 2, .sync_batchnorm = true}, "belongs to ddp and zero1"},
      {"pipeline", 1, {.devices = {torch::Device(torch::kCPU)}, .stages = 2}, "2 workers, got 1"},
      {"pipeline",
       1,
       {.devices = std::vector<torch::Device>(2, torch::kCPU), .stages = 1},
       "1 stage by the schedule 1f1b has 1 worker, got 2 devices"},
  };
  for (const Case& c : cases) {
    const auto errors = run_group(c.ranks, c.ranks == 1 ? "auto" : "shm", [&](ProcessGroup group) {
      group.barrier();  // every rank has met the others before one leaves
      make_strategy(c.strategy, group, c.options);
    });
    EXPECT_THAT(errors, Each(HasSubstr(c.text))) << c.strategy << ' ' << c.ranks;
  }
}

// Strategy hybrid is suggested only where the ranks make whole pipelines.
TEST(TrainerPipelineRefusals, NameTheRanksThatAPipelineNeeds) {
  struct Case {
    const char* strategy;
    int ranks;
    StrategyOptions options;
    const char* text;
  };
  const Case cases[] = {
      {"pipeline", 2, staged(1),
       "strategy pipeline: 1 stage by the schedule 1f1b needs 1 rank, or one process with threads, "
       "but there are 2; use strategy hybrid"},
      {"pipeline", 3, staged(2),
       "strategy pipeline: 2 stages by the schedule 1f1b need 2 ranks, or one process with "
       "threads, but there are 3"},
      {"pipeline", 2, staged(4),
       "strategy pipeline: 4 stages by the schedule 1f1b need 4 ranks, or one process with "
       "threads, but there are 2"},
      {"pipeline", 2, staged(2, Schedule::kZbV),
       "strategy pipeline: 2 stages by the schedule zbv need 1 rank, or one process with threads, "
       "but there are 2; use strategy hybrid"},
      {"hybrid", 3, staged(4, Schedule::kZbV),
       "strategy hybrid: 4 stages by the schedule zbv need 2 ranks for each replica; the number of "
       "ranks must be a multiple of that, got 3"},
      {"hybrid", 1, staged(2),
       "strategy hybrid: 2 stages by the schedule 1f1b need 2 ranks for each replica; the number "
       "of ranks must be a multiple of that, got 1"}};
  for (const Case& c : cases) {
    const auto errors = run_group(c.ranks, c.ranks == 1 ? "auto" : "shm", [&](ProcessGroup group) {
      group.barrier();  // every rank has met the others before one leaves
      make_strategy(c.strategy, group, c.options);
    });
    EXPECT_THAT(errors, Each(testing::EndsWith(c.text)));
  }
}

TEST(TrainerPipelineRefusals, NameATaskWithoutStages) {
  const auto fit = [](Task& task) {
    Loader loader = train_loader(group_of_one());
    Trainer(options(1), make_strategy("pipeline", group_of_one(), staged(2))).fit(task, loader);
  };
  ClassificationTask uncut(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  EXPECT_THAT(message_of<ConfigError>([&] { fit(uncut); }), HasSubstr("how its model is cut"));

  // The first cut omits the last layer. The second one has layers of another net.
  const torch::nn::Sequential net = make_staged_net();
  ClassificationTask forgetful(net, ClassificationLoss::kCrossEntropy, [net](int) {
    auto stages = cut_staged_net(net, {}, 4);
    return std::vector<pipeline::StageModule>(stages.begin(), stages.begin() + 2);
  });
  EXPECT_THAT(
      message_of<ConfigError>([&] { fit(forgetful); }),
      AllOf(HasSubstr("strategy pipeline"), HasSubstr("none of the 2 stages has '5.weight'")));
  ClassificationTask foreign(net, ClassificationLoss::kCrossEntropy, [](int stages) {
    return cut_staged_net(make_staged_net(), {}, stages);
  });
  EXPECT_THAT(message_of<ConfigError>([&] { fit(foreign); }),
              HasSubstr("which the model does not have"));
}

TEST(TrainerPipelineRefusals, NameADeviceThatIsNotTheRuns) {
  ClassificationTask task = make_staged_task(make_staged_net());
  Loader loader = train_loader(group_of_one());
  StrategyOptions elsewhere = staged(2);
  elsewhere.devices = {torch::Device("cuda:0"), torch::Device("cuda:1")};
  Trainer trainer(options(1), make_strategy("pipeline", group_of_one(), elsewhere));
  EXPECT_EQ(message_of<ConfigError>([&] { trainer.fit(task, loader, Trainer::LoaderFactory()); }),
            "strategy pipeline: the run's device is cpu, but the first stage is on cuda:0; set "
            "TrainerOptions::device to cuda");
}

}  // namespace
}  // namespace lockstep::train
