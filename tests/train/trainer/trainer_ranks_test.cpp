// Defects that only several ranks reveal: on all of them alike, or on all but the first.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing_support::no_errors;
using testing_support::run_group;
using testing_support::run_group_processes;

constexpr int kRanks = 2;

TrainerOptions in_float16(std::int64_t epochs) {
  TrainerOptions half = options(epochs);
  half.precision = Precision::kFp16;
  // The scale falls in the first two steps and then rises every two steps. A rank that restarted
  // the scale or its counter would have a different one. Float16 is slow here, so that the runs are
  // short.
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-4, .growth_interval = 2};
  return half;
}

TEST(TrainerRanks, ClipGradientsOfTheirTrueSize) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  clipped.precision = Precision::kFp16;
  clipped.grad_scaler = {.init_scale = 1024};
  clipped.max_steps = 1;
  clipped.limit_val_batches = 0;
  for (const char* strategy : {"ddp", "zero1"}) {
    const Outcome outcome = train_ranks(kRanks, "shm", strategy, clipped);
    EXPECT_NEAR(distance(outcome.state, initial_state()), 0.5 * 0.01, 1e-5) << strategy;
  }
}

TEST(TrainerRanks, GoOnWithTheLossScaleOnAllRanks) {
  for (const char* strategy : {"ddp", "zero1"}) {
    const lockstep::testing_support::TemporaryDirectory directory;
    TrainerOptions run = in_float16(1);
    const StateDict whole = train_ranks(kRanks, "shm", strategy, run).state;
    EXPECT_GT(distance(whole, initial_state()), 1e-3) << "some steps must not overflow";
    run.checkpoints.directory = directory / "checkpoints";
    run.max_steps = 3;
    train_ranks(kRanks, "shm", strategy, run);
    run.max_steps.reset();
    run.resume = true;
    expect_equal_bits(train_ranks(kRanks, "shm", strategy, run).state, whole);
  }
}

// One element's gradient overflows, which belongs to the shard of one rank.
class OverflowingTask : public Task {
 public:
  explicit OverflowingTask(MnistNet net)
      : task_(net, ClassificationLoss::kNegativeLogLikelihood),
        bias_(net->named_parameters()["fc2.bias"]) {}
  torch::nn::Module& module() override { return task_.module(); }
  torch::Tensor training_step(const Batch& batch) override {
    return task_.training_step(batch) + 1e37 * bias_[0];
  }
  void evaluation_step(const Batch&, MetricSums&) override {}

 private:
  ClassificationTask task_;
  torch::Tensor bias_;
};

TEST(TrainerRanks, SkipAStepTogether) {
  std::vector<StateDict> before(kRanks);
  std::vector<StateDict> after(kRanks);
  const auto errors = run_group(kRanks, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    const auto rank = static_cast<std::size_t>(group.rank());
    MnistNet net;
    for (const auto& [name, tensor] : state_dict(*net)) {
      before[rank].emplace_back(name, tensor.clone());
    }
    OverflowingTask task(net);
    TrainerOptions half = in_float16(1);
    half.grad_scaler = {.init_scale = 1024};
    half.max_steps = 1;
    Loader loader = train_loader(group);
    Trainer(half, make_strategy("zero1", group)).fit(task, loader);
    for (const auto& [name, tensor] : state_dict(*net)) {
      after[rank].emplace_back(name, tensor.clone());
    }
  });
  ASSERT_EQ(errors, no_errors(kRanks));
  for (const StateDict& state : after) expect_equal_bits(state, before[0]);
}

// A net whose batch normalisation remembers little but the last batch, which differs between ranks.
struct NormalizedNetImpl : torch::nn::Module {
  NormalizedNetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(28 * 28, 16));
    norm = register_module("norm",
                           torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(16).momentum(0.9)));
    output = register_module("output", torch::nn::Linear(16, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    const auto features = norm->forward(hidden->forward(images.flatten(1))).relu();
    return output->forward(features).log_softmax(1);
  }
  torch::nn::Linear hidden{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(NormalizedNet);

Evaluation evaluate_alone(const StateDict& state) {
  NormalizedNet net;
  load_state_dict(*net, state);
  net->eval();
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  const torch::NoGradGuard no_grad;
  MetricSums sums;
  const auto images = test_loader(init_process_group());
  for (const Batch& batch : *images) task.evaluation_step(batch, sums);
  return sums.mean();
}

TEST(TrainerRanks, EvaluateTheNetOfRankZero) {
  struct Result {
    RunReport report;
    StateDict state;
  };
  std::vector<Result> results(kRanks);
  const auto errors = run_group(kRanks, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    NormalizedNet net;
    ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
    Loader loader = train_loader(group);
    Trainer trainer(options(1), make_strategy("ddp", group));
    Result& result = results[static_cast<std::size_t>(group.rank())];
    result.report = trainer.fit(task, loader, [&] { return test_loader(group); });
    result.state = state_dict(*net);
  });
  ASSERT_EQ(errors, no_errors(kRanks));
  expect_equal_bits(results[1].state, results[0].state);
  const Evaluation alone = evaluate_alone(results[0].state);
  for (const Result& result : results) {
    EXPECT_EQ(result.report.test->samples, alone.samples);
    EXPECT_NEAR(result.report.test->loss, alone.loss, 1e-5);
    EXPECT_NEAR(result.report.test->accuracy(), alone.accuracy(), 1e-9);
  }
}

// Trains the net with batch normalisation for one epoch and returns its weights and running
// statistics.
StateDict train_normalized(ProcessGroup group, const std::string& strategy, bool sync) {
  NormalizedNet net;
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) {
      parameter.copy_(
          torch::arange(parameter.numel()).mul(0.7).sin().mul(0.1).add(0.05).view_as(parameter));
    }
  }
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group);
  Trainer(options(1), make_strategy(strategy, group, {.sync_batchnorm = sync})).fit(task, loader);
  StateDict state;
  for (const auto& [name, tensor] : state_dict(*net)) state.emplace_back(name, tensor.clone());
  return state;
}

TEST(TrainerRanks, NormaliseTheirBatchesTogether) {
  const StateDict alone = train_normalized(group_of_one(), "single", false);
  for (const char* strategy : {"ddp", "zero1"}) {
    for (const bool sync : {true, false}) {
      std::vector<StateDict> states(kRanks);
      const auto errors = run_group(kRanks, "shm", [&](ProcessGroup group) {
        at::set_num_threads(1);
        states[static_cast<std::size_t>(group.rank())] = train_normalized(group, strategy, sync);
      });
      ASSERT_EQ(errors, no_errors(kRanks));
      if (sync) {
        expect_close(states[0], alone);
      } else {
        EXPECT_GT(distance(states[0], alone), 1e-2) << strategy;
      }
    }
  }
}

// The classic net with a hook: `note` receives each batch before the net does.
class WatchedTask : public Task {
 public:
  explicit WatchedTask(std::function<void(const Batch&)> note) : note_(std::move(note)) {}
  torch::nn::Module& module() override { return task_.module(); }
  torch::Tensor training_step(const Batch& batch) override {
    note_(batch);
    return task_.training_step(batch);
  }
  void evaluation_step(const Batch& batch, MetricSums& sums) override {
    task_.evaluation_step(batch, sums);
  }

 private:
  std::function<void(const Batch&)> note_;
  ClassificationTask task_{MnistNet(), ClassificationLoss::kNegativeLogLikelihood};
};

TEST(TrainerRanks, MixTheirBatchesEachInItsOwnWay) {
  // The mixing weight of each step, by rank.
  std::vector<std::vector<double>> shares(kRanks);
  const auto errors = run_group(kRanks, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    WatchedTask task([&](const Batch& batch) {
      const auto own = std::get<0>(batch.labels.max(1));
      shares[static_cast<std::size_t>(group.rank())].push_back(own.min().item<double>());
    });
    Loader loader(train_images(),
                  DistributedSampler(kImages, {.rank = group.rank(), .world_size = kRanks}),
                  kNormalize, {.batch_size = kGlobalBatch / kRanks, .mix = MixUp{}});
    Trainer(options(1), make_strategy("ddp", group)).fit(task, loader);
  });
  ASSERT_EQ(errors, no_errors(kRanks));
  ASSERT_EQ(shares[0].size(), 6U);
  ASSERT_EQ(shares[1].size(), 6U);
  for (std::size_t step = 0; step < 6; ++step) EXPECT_NE(shares[0][step], shares[1][step]) << step;
}

// All images in the loader's format, in the order of the data set.
torch::Tensor images_in_order() {
  Loader loader(train_images(), SequentialSampler(kImages), kNormalize, {.batch_size = kImages});
  loader.set_epoch(0);
  Batch all;
  LOCKSTEP_CHECK(loader.next(all) && all.size == kImages, "the loader gave ", all.size, " images");
  return all.images.clone();
}

// Two ranks train to the middle of the second epoch, and another number of ranks continues.
struct ChangeOfRanks {
  const char* name;
  std::int64_t taken;    // images of the second epoch, not divisible among three ranks
  std::int64_t repeats;  // images repeated from the epoch's start to make the three shares equal
};

void PrintTo(const ChangeOfRanks& change, std::ostream* out) { *out << change.name; }

class TrainerChangeOfRanks : public ::testing::TestWithParam<ChangeOfRanks> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainerChangeOfRanks,
                         ::testing::Values(ChangeOfRanks{"NoRepeats", 20, 0},
                                           ChangeOfRanks{"TwoRepeats", 40, 2},
                                           ChangeOfRanks{"LastStep", 100, 2}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(TrainerChangeOfRanks, TakesEachImageThatIsLeftOfTheEpoch) {
  const ChangeOfRanks change = GetParam();
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.limit_val_batches = 0;
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = (kImages + kGlobalBatch - 1) / kGlobalBatch + change.taken / kGlobalBatch;
  train_ranks(2, "shm", "ddp", run);
  run.max_steps.reset();
  run.resume = true;
  constexpr int kRanksNow = 3;
  const torch::Tensor all = images_in_order();
  std::vector<std::vector<std::int64_t>> seen_by(kRanksNow);
  const auto errors = run_group(kRanksNow, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    WatchedTask task([&](const Batch& batch) {
      for (std::int64_t i = 0; i < batch.size; ++i) {
        const torch::Tensor same = all.eq(batch.images[i]).flatten(1).all(1).nonzero();
        LOCKSTEP_CHECK(same.size(0) == 1, same.size(0), " images look alike");
        seen_by[static_cast<std::size_t>(group.rank())].push_back(same[0][0].item<std::int64_t>());
      }
    });
    Loader loader = train_loader(group);
    const RunReport report = Trainer(run, make_strategy("ddp", group)).fit(task, loader);
    LOCKSTEP_CHECK(report.epochs.size() == 1, "trained ", report.epochs.size(), " epochs");
  });
  ASSERT_EQ(errors, no_errors(kRanksNow));
  std::vector<std::int64_t> seen;
  for (const auto& own : seen_by) seen.insert(seen.end(), own.begin(), own.end());
  const std::vector<std::int64_t> order = DistributedSampler(kImages).indices(1);
  std::vector<std::int64_t> expected(order.begin() + change.taken, order.end());
  expected.insert(expected.end(), order.begin(), order.begin() + change.repeats);
  EXPECT_THAT(seen, ::testing::UnorderedElementsAreArray(expected));
}

// The ranks are processes, which have separate generators.
TEST(TrainerProcesses, DrawTheirOwnRandomNumbersInEachStep) {
  const auto errors = run_group_processes(kRanks, "shm", [](ProcessGroup group) {
    at::set_num_threads(1);
    std::vector<double> draws;
    WatchedTask task([&](const Batch&) { draws.push_back(torch::rand({1}).item<double>()); });
    Loader loader = train_loader(group);
    Trainer(options(2), make_strategy("ddp", group)).fit(task, loader);
    const std::set<double> different(draws.begin(), draws.end());
    LOCKSTEP_CHECK(draws.size() == 12 && different.size() == 12, "drew ", join(draws));
    const torch::Tensor own = torch::tensor(draws);
    torch::Tensor of_rank_zero = own.clone();
    group.broadcast(of_rank_zero, 0);
    LOCKSTEP_CHECK(group.rank() == 0 || of_rank_zero.ne(own).all().item<bool>(), "rank 0 drew ",
                   of_rank_zero, ", this rank ", own);
  });
  EXPECT_EQ(errors, no_errors(kRanks));
}

TEST(TrainerProcesses, GoOnExactlyWithDropoutInFloat16) {
  const lockstep::testing_support::TemporaryDirectory directory;
  const auto errors = run_group_processes(kRanks, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    TrainerOptions run = in_float16(1);
    run.optimizer = AdamWOptions{};
    const StateDict whole = train(run, group).state;
    run.checkpoints.directory = directory / "checkpoints";
    run.max_steps = 3;
    train(run, group);
    run.max_steps.reset();
    run.resume = true;
    const StateDict resumed = train(run, group).state;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      LOCKSTEP_CHECK(resumed[i].second.equal(whole[i].second), "another ", whole[i].first);
    }
  });
  EXPECT_EQ(errors, no_errors(kRanks));
}

}  // namespace
}  // namespace lockstep::train
