// Steps whose loss or gradients are not finite: TrainerOptions::on_nan, and the checkpoints of a
// run that has diverged.
#include <lockstep/train/trainer.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/finite_steps.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_support::CapturedLog;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::TemporaryDirectory;

enum class Poison { kLoss, kGradient };

// The first pixel of a poisoned image, after normalisation, exceeds this.
constexpr double kPoisoned = 2.5;

// The first layer of a net. A batch with a poisoned image has a loss that is NaN, or a gradient.
struct PoisonedLayerImpl : torch::nn::Module {
  explicit PoisonedLayerImpl(Poison how) : poison(how) {}
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = images.flatten(1);
    if (!x.select(1, 0).gt(kPoisoned).any().item<bool>()) return x + weight;
    if (poison == Poison::kLoss) return x + weight * std::nan("");
    return x + weight + (weight - weight).sqrt();  // 0, but its derivative is infinity - infinity
  }
  Poison poison;
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(PoisonedLayer);

struct NanCase {
  Poison poison = Poison::kLoss;
  bool norm = false;
  std::int64_t first_poisoned = 37;  // the only one, unless all are
  bool all = false;
};

torch::nn::Sequential make_poisoned_net(const NanCase& c) {
  torch::nn::Sequential net(PoisonedLayer(c.poison), torch::nn::Linear(28 * 28, 16));
  if (c.norm) net->push_back(torch::nn::BatchNorm1d(16));
  net->push_back(torch::nn::Tanh());
  net->push_back(torch::nn::Linear(16, 10));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    const double scale = parameter.dim() == 2 ? 1 / std::sqrt(parameter.size(1)) : 0.1;
    parameter.copy_(torch::arange(parameter.numel()).mul(0.7).sin().mul(scale).view_as(parameter));
  }
  return net;
}

ClassificationTask poisoned_task(const torch::nn::Sequential& net) {
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {2, 2})); });
}

ImageDataset poisoned_images(const NanCase& c) {
  torch::Tensor images = torch::arange(kImages * 28 * 28).mul(37).remainder(200).to(torch::kUInt8);
  images = images.view({kImages, 1, 28, 28});
  if (c.all) {
    images.slice(0, c.first_poisoned).select(2, 0).select(2, 0).fill_(255);
  } else {
    images[c.first_poisoned][0][0][0] = 255;
  }
  return image_dataset(images, torch::arange(kImages).remainder(10), 10, "poisoned");
}

Loader poisoned_loader(const NanCase& c, const DataShare& share) {
  return Loader(poisoned_images(c),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = kGlobalBatch / share.size});
}

TrainerOptions nan_run(OnNan policy) {
  TrainerOptions run = options(2);
  run.optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9};
  run.schedule = {};
  run.on_nan = policy;
  return run;
}

RunReport fit_poisoned(const TrainerOptions& run, const ProcessGroup& group, const StagedRun& way,
                       const NanCase& c, const torch::nn::Sequential& net) {
  ClassificationTask task = poisoned_task(net);
  std::unique_ptr<Strategy> strategy = make_strategy(way.strategy, group, way.options);
  Loader loader = poisoned_loader(c, strategy->data_share());
  return Trainer(run, std::move(strategy)).fit(task, loader);
}

constexpr double kAverageDecay = 0.8;

// Takes equal steps with LibTorch's own optimizer. Poisoned steps are left out, together with what
// they did to the running statistics.
struct SkippedByHand {
  StateDict state;
  StateDict averaged;                 // the moving average of the parameters, with kAverageDecay
  std::vector<double> losses;         // the mean of each epoch, without skipped steps
  std::vector<std::int64_t> skipped;  // steps of the run, from 1
};

SkippedByHand skip_by_hand(const NanCase& c, std::int64_t accumulate = 1) {
  torch::nn::Sequential net = make_poisoned_net(c);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  Loader loader = poisoned_loader(c, {});
  SkippedByHand result;
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    double sum = 0;
    std::int64_t samples = 0;
    while (loader.steps_left() > 0) {
      ++step;
      optimizer.zero_grad();
      std::vector<torch::Tensor> before;
      for (const torch::Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
      const std::int64_t parts = std::min(accumulate, loader.steps_left());
      bool sound = true;
      double sum_of_step = 0;
      std::int64_t samples_of_step = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        Batch batch;
        LOCKSTEP_CHECK(loader.next(batch), "no batch");
        const torch::Tensor loss =
            torch::nn::functional::cross_entropy(net->forward(batch.images), batch.labels);
        (loss / static_cast<double>(parts)).backward();
        sum_of_step += loss.item<double>() * static_cast<double>(batch.size);
        samples_of_step += batch.size;
        const torch::Tensor first = batch.images.flatten(1).select(1, 0);
        sound = sound && !first.gt(kPoisoned).any().item<bool>();
      }
      if (sound) {
        optimizer.step();
        sum += sum_of_step;
        samples += samples_of_step;
        const auto parameters = net->named_parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const torch::Tensor now = parameters[i].value().detach().clone();
          if (result.averaged.size() <= i) result.averaged.emplace_back(parameters[i].key(), now);
          torch::Tensor& average = result.averaged[i].second;
          average = average * kAverageDecay + now * (1 - kAverageDecay);
        }
        continue;
      }
      result.skipped.push_back(step);
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < before.size(); ++i) net->buffers()[i].copy_(before[i]);
    }
    result.losses.push_back(sum / static_cast<double>(samples));
  }
  result.state = state_dict(*net);
  return result;
}

struct NanWay {
  const char* name;
  int ranks;
  StagedRun run;
};

std::vector<NanWay> nan_ways() {
  const std::vector<torch::Device> two(2, torch::kCPU);
  const StrategyOptions staged = {.stages = 2, .micro_batches = 2};
  return {{"single", 1, {}},
          {"ddp", 2, {.strategy = "ddp"}},
          {"zero1", 2, {.strategy = "zero1"}},
          {"threads", 1, {.strategy = "pipeline", .options = staged}},
          {"ranks", 2, {.strategy = "pipeline", .options = staged}},
          {"hybrid", 4, {.strategy = "hybrid", .options = staged}}};
}

// Calls `train_rank` on each rank, and returns the ranks' errors.
std::vector<std::string> on_ranks(int ranks,
                                  const std::function<void(const ProcessGroup&)>& train_rank) {
  return run_group(ranks, ranks == 1 ? "auto" : "shm", [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    train_rank(group);
  });
}

TEST(TrainerOnNan, SkipsAsByHandWithEveryStrategy) {
  at::set_num_threads(1);
  for (const Poison poison : {Poison::kLoss, Poison::kGradient}) {
    const NanCase c{.poison = poison};
    const SkippedByHand expected = skip_by_hand(c);
    ASSERT_THAT(expected.skipped, SizeIs(2)) << "once per epoch";
    for (const NanWay& way : nan_ways()) {
      SCOPED_TRACE(str(way.name, poison == Poison::kLoss ? ", loss" : ", gradient"));
      StateDict state;
      RunReport report;
      const CapturedLog log;
      const auto errors = on_ranks(way.ranks, [&](const ProcessGroup& group) {
        const torch::nn::Sequential net = make_poisoned_net(c);
        RunReport own = fit_poisoned(nan_run(OnNan::kSkip), group, way.run, c, net);
        if (group.rank() != 0) return;
        state = state_dict(*net);
        report = std::move(own);
      });
      EXPECT_EQ(errors, no_errors(way.ranks));
      expect_close(state, expected.state);
      ASSERT_EQ(report.epochs.size(), 2U);
      for (std::size_t epoch = 0; epoch < 2; ++epoch) {
        EXPECT_NEAR(report.epochs[epoch].train_loss, expected.losses[epoch], 1e-4) << epoch;
        EXPECT_EQ(report.epochs[epoch].steps, 6);
      }
      EXPECT_THAT(log.lines(),
                  ElementsAre(HasSubstr(str("(step ", expected.skipped[0],
                                            " of the run); the update of that step is skipped")),
                              HasSubstr("2 of 12 steps were skipped")));
    }
  }
}

// A rank sees its own loss in its step. Rank 0 sees the mean of the epoch, whichever rank's it was.
TEST(TrainerOnNan, RankZeroWarnsOfTheLossOfAnotherRank) {
  for (const int poisoned_rank : {0, 1}) {
    const CapturedLog log;
    const auto errors = on_ranks(2, [&](const ProcessGroup& group) {
      const NanCase c{.first_poisoned = group.rank() == poisoned_rank ? 0 : kImages, .all = true};
      TrainerOptions run = nan_run(OnNan::kWarn);
      run.max_steps = 1;
      const torch::nn::Sequential net = make_poisoned_net(c);
      fit_poisoned(run, group, {.strategy = "ddp"}, c, net);
    });
    EXPECT_EQ(errors, no_errors(2));
    std::vector<std::string> lines = log.lines();
    std::erase_if(lines, [](const std::string& line) {
      return line.find("the loss is ") == std::string::npos;
    });
    const std::string place = "in step 1 of epoch 1 (step 1 of the run); the run continues";
    if (poisoned_rank == 0) {
      EXPECT_THAT(lines, ElementsAre(HasSubstr(place)));
    } else {
      EXPECT_THAT(lines, ElementsAre(HasSubstr(place), HasSubstr("in epoch 1; the run")));
    }
  }
}

TEST(TrainerOnNan, SkipsAStepOfSeveralBatchesWithItsRunningStatistics) {
  at::set_num_threads(1);
  const NanCase c{.norm = true};
  const SkippedByHand expected = skip_by_hand(c, /*accumulate=*/2);
  ASSERT_THAT(expected.skipped, SizeIs(2));
  TrainerOptions run = nan_run(OnNan::kSkip);
  run.accumulate_grad_batches = 2;
  const torch::nn::Sequential net = make_poisoned_net(c);
  const CapturedLog log;
  const RunReport report = fit_poisoned(run, group_of_one(), {}, c, net);
  expect_close(state_dict(*net), expected.state);
  EXPECT_NEAR(report.epochs[1].train_loss, expected.losses[1], 1e-4);
}

// Neither the moving average nor a run that was stopped and resumed sees a skipped step.
TEST(TrainerOnNan, SkipsTheAverageAndGoesOnExactly) {
  at::set_num_threads(1);
  const NanCase c{};
  const SkippedByHand expected = skip_by_hand(c);
  TrainerOptions run = nan_run(OnNan::kSkip);
  run.ema_decay = kAverageDecay;
  const CapturedLog log;
  const auto fit = [&](const torch::nn::Sequential& net) {
    ClassificationTask task = poisoned_task(net);
    Loader loader = poisoned_loader(c, {});
    Trainer trainer(run, make_strategy("single", group_of_one()));
    trainer.fit(task, loader);
    return trainer.averaged_state();
  };
  const torch::nn::Sequential net = make_poisoned_net(c), resumed = make_poisoned_net(c);
  const StateDict averaged = fit(net);
  expect_close(averaged, expected.averaged);
  const TemporaryDirectory directory;
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = expected.skipped[0];  // ends with the step that is skipped
  fit(make_poisoned_net(c));
  run.max_steps.reset();
  run.resume = true;
  expect_equal_bits(fit(resumed), averaged);
  expect_equal_bits(state_dict(*resumed), state_dict(*net));
}

TEST(TrainerOnNan, ChangesNothingIfAllStepsAreSkipped) {
  const NanCase c{.norm = true, .first_poisoned = 0, .all = true};
  const torch::nn::Sequential net = make_poisoned_net(c);
  const CapturedLog log;
  const RunReport report = fit_poisoned(nan_run(OnNan::kSkip), group_of_one(), {}, c, net);
  expect_equal_bits(state_dict(*net), state_dict(*make_poisoned_net(c)));
  EXPECT_TRUE(std::isnan(report.epochs[0].train_loss));
  EXPECT_THAT(log.lines(), Contains(HasSubstr("12 of 12 steps were skipped")));
}

TEST(TrainerOnNan, StopsAllRanksBeforeTheStep) {
  at::set_num_threads(1);
  for (const Poison poison : {Poison::kLoss, Poison::kGradient}) {
    const NanCase c{.poison = poison};
    const std::int64_t bad = skip_by_hand(c).skipped[0];
    for (const NanWay& way : nan_ways()) {
      SCOPED_TRACE(str(way.name, poison == Poison::kLoss ? ", loss" : ", gradient"));
      const auto errors = on_ranks(way.ranks, [&](const ProcessGroup& group) {
        const torch::nn::Sequential net = make_poisoned_net(c);
        fit_poisoned(nan_run(OnNan::kStop), group, way.run, c, net);
      });
      ASSERT_THAT(errors, SizeIs(static_cast<std::size_t>(way.ranks)));
      EXPECT_THAT(errors, Each(AllOf(HasSubstr(poison == Poison::kLoss ? "the loss" : "a gradient"),
                                     HasSubstr(str("in step ", bad, " of epoch 1 (step ", bad,
                                                   " of the run); the run stops")),
                                     HasSubstr("TrainerOptions::on_nan"))));
    }
    const torch::nn::Sequential net = make_poisoned_net(c), before = make_poisoned_net(c);
    EXPECT_THROW(fit_poisoned(nan_run(OnNan::kStop), group_of_one(), {}, c, net), Error);
    TrainerOptions shorter = nan_run(OnNan::kWarn);
    shorter.max_steps = bad - 1;
    fit_poisoned(shorter, group_of_one(), {}, c, before);
    expect_equal_bits(state_dict(*net), state_dict(*before));
  }
}

// Loss scaling in float16 makes such gradients on purpose.
TEST(TrainerOnNan, LeavesGradientsInFloat16ToTheLossScaler) {
  TrainerOptions run = options(1);
  run.precision = Precision::kFp16;
  run.grad_scaler = {.init_scale = 1e38};
  run.limit_val_batches = 0;
  const StateDict warned = train(run, group_of_one(), false).state;
  run.on_nan = OnNan::kStop;
  expect_equal_bits(train(run, group_of_one(), false).state, warned);
}

TEST(TrainerOnNan, WarnsOfTheFirstStepAndKeepsTheLastFiniteCheckpoint) {
  at::set_num_threads(1);
  const NanCase c{};
  const std::int64_t bad = skip_by_hand(c).skipped[0];
  ASSERT_GT(bad, 1);
  for (const bool background : {false, true}) {
    const TemporaryDirectory directory;
    TrainerOptions run = nan_run(OnNan::kWarn);
    run.checkpoints = {.directory = directory / "checkpoints",
                       .every_n_train_steps = 1,
                       .keep_last = 1,
                       .background = background};
    const std::string good = checkpoint_name(bad - 1);
    const fs::path latest = run.checkpoints.directory / "latest";
    {
      const CapturedLog log;
      fit_poisoned(run, group_of_one(), {}, c, make_poisoned_net(c));
      EXPECT_THAT(log.lines(),
                  ElementsAre(HasSubstr(str("the loss is nan in step ", bad, " of epoch 1 (step ",
                                            bad, " of the run); the run continues")),
                              AllOf(HasSubstr(checkpoint_name(bad) +
                                              " holds values that are not finite: the run "
                                              "has diverged"),
                                    HasSubstr(str("`ln -sfn ", good, ' ', latest.string(), "`")))));
    }
    std::vector<std::string> names;
    for (const fs::path& folder : checkpoint_folders(run.checkpoints.directory)) {
      names.push_back(folder.filename());
    }
    EXPECT_THAT(names, ElementsAre(good, "step-00000012"));
    EXPECT_TRUE(read_manifest(run.checkpoints.directory / good).finite);
    EXPECT_FALSE(read_manifest(run.checkpoints.directory / "step-00000012").finite);
    run.resume = true;
    {
      const CapturedLog log;
      EXPECT_TRUE(fit_poisoned(run, group_of_one(), {}, c, make_poisoned_net(c)).already_complete);
      EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr("the run had diverged when it was saved"),
                                              HasSubstr(str("`ln -sfn ", good)))));
    }
    // As the warning says, and with a policy that survives the step.
    fs::remove(latest);
    fs::create_symlink(good, latest);
    run.on_nan = OnNan::kSkip;
    const CapturedLog log;
    const torch::nn::Sequential net = make_poisoned_net(c);
    fit_poisoned(run, group_of_one(), {}, c, net);
    expect_close(state_dict(*net), skip_by_hand(c).state);
    EXPECT_TRUE(read_manifest(run.checkpoints.directory / "step-00000012").finite);
  }
}

// The rank that sees it says so, at the step in question.
TEST(TrainerOnNan, WarnsOfTheLossOfAnyRank) {
  at::set_num_threads(1);
  const NanCase c{};
  const std::int64_t bad = skip_by_hand(c).skipped[0];
  for (const char* strategy : {"ddp", "zero1"}) {
    const CapturedLog log;
    const auto errors = on_ranks(2, [&](const ProcessGroup& group) {
      fit_poisoned(nan_run(OnNan::kWarn), group, {.strategy = strategy}, c, make_poisoned_net(c));
    });
    EXPECT_EQ(errors, no_errors(2));
    EXPECT_THAT(log.lines(), Contains(HasSubstr(str("(step ", bad, " of the run)")))) << strategy;
    EXPECT_THAT(log.lines(), SizeIs(2)) << "once per rank";
  }
}

// An infinite value in a mask is usual, be it a buffer or a frozen parameter.
TEST(TrainerOnNan, TakesOnlyNanInMasksForDivergence) {
  struct MaskedImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x.flatten(1)); }
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(28 * 28, 10));
    torch::Tensor mask =
        register_buffer("mask", torch::full({3}, -std::numeric_limits<float>::infinity()));
    torch::Tensor frozen = register_parameter("frozen", mask.clone(), /*requires_grad=*/false);
  };
  for (const bool nan : {false, true}) {
    const TemporaryDirectory directory;
    const auto net = std::make_shared<MaskedImpl>();
    if (nan) net->mask.fill_(std::nan(""));
    ClassificationTask task{torch::nn::ModuleHolder<MaskedImpl>(net),
                            ClassificationLoss::kCrossEntropy};
    Loader loader = train_loader(group_of_one());
    TrainerOptions run = options(1);
    run.checkpoints.directory = directory / "checkpoints";
    const CapturedLog log;
    Trainer(run, make_strategy("single", group_of_one())).fit(task, loader);
    EXPECT_EQ(read_manifest(run.checkpoints.directory / "step-00000006").finite, !nan);
    EXPECT_THAT(log.lines(), SizeIs(nan ? 1 : 0));
  }
}

// Early stopping ends the run at the end of the epoch, and its state says so to a resumed run.
TEST(TrainerOnNan, StaysStoppedByEarlyStopping) {
  const NanCase c{};
  const TemporaryDirectory directory;
  TrainerOptions run = nan_run(OnNan::kWarn);
  run.max_epochs = 5;
  run.early_stopping = EarlyStoppingOptions{.monitor = "train_loss", .patience = 4};
  run.checkpoints.directory = directory / "checkpoints";
  const CapturedLog log;
  const RunReport first = fit_poisoned(run, group_of_one(), {}, c, make_poisoned_net(c));
  EXPECT_EQ(first.epochs.size(), 1U);
  EXPECT_EQ(first.stop_reason, "train_loss is nan");
  run.resume = true;
  const RunReport second = fit_poisoned(run, group_of_one(), {}, c, make_poisoned_net(c));
  EXPECT_TRUE(second.already_complete);
  EXPECT_EQ(second.stop_reason, "train_loss is nan");
  run.early_stopping->check_finite = false;
  const RunReport third = fit_poisoned(run, group_of_one(), {}, c, make_poisoned_net(c));
  EXPECT_EQ(third.epochs.size(), 3U) << "one bad value was counted before";
}

// On many processors 0 / 0 has the sign bit set.
TEST(TrainerOnNan, NamesNanWithoutASign) {
  const double nan = std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0);
  CapturedLog log;
  FiniteSteps warns(OnNan::kWarn, torch::kCPU);
  warns.note(nan, "step 1");
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("the loss is nan in step 1; the run continues")));
  FiniteSteps stops(OnNan::kStop, torch::kCPU);
  ProcessGroup group = group_of_one();
  const FiniteSteps::Step step{.loss = torch::tensor(nan, torch::kFloat64), .place = "step 1"};
  EXPECT_THAT(message_of<Error>([&] { stops.allows(step, group); }),
              HasSubstr("the loss is nan in step 1; the run stops"));
  EarlyStopping early_stopping(EarlyStoppingOptions{.monitor = "loss", .check_finite = true});
  early_stopping.step(nan);
  EXPECT_EQ(early_stopping.reason(), "loss is nan");
}

TEST(TrainerOnNan, HasNamesAndRefusesAGraph) {
  EXPECT_THAT(on_nan_names(), ElementsAre("warn", "stop", "skip"));
  for (const std::string& name : on_nan_names()) EXPECT_EQ(to_string(parse_on_nan(name)), name);
  EXPECT_THROW(parse_on_nan("ask"), ConfigError);
  for (const OnNan policy : {OnNan::kStop, OnNan::kSkip}) {
    TrainerOptions run = nan_run(policy);
    run.cuda_graph = true;
    EXPECT_THAT(
        message_of<ConfigError>([&] { Trainer(run, make_strategy("single", group_of_one())); }),
        HasSubstr(str("cuda_graph and on_nan ", to_string(policy), " cannot be combined")));
  }
}

}  // namespace
}  // namespace lockstep::train
