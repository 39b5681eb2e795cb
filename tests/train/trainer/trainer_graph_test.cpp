// Runs with cuda_graph and a stand-in for the graph on the CPU: warm-up, capture, replays, and
// rejected options.
#include <lockstep/train/trainer.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/train/captured_step.h>
#include <lockstep/train/recorded_memory.h>
#include <lockstep/train/step_graph.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/recorded_graph.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::RecordedGraph;
using testing_support::TemporaryDirectory;

// `events` must outlive the run.
TrainerOptions with_graph(TrainerOptions run, std::string& events) {
  run.cuda_graph = true;
  run.make_step_graph = [&events](torch::Device, const ProcessGroup&) {
    return std::make_unique<RecordedGraph>(&events);
  };
  return run;
}

// Trains in a group of one. With ddp the parameters are flat, so that the stand-in can update them.
// The net uses only LibTorch's operations, because the stand-in does not record our own kernels.
Outcome train_ddp(const TrainerOptions& run) {
  torch::manual_seed(11);
  const MnistNet net(MnistNetOptions{.fused_kernels = false});
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group_of_one());
  Trainer trainer(run, make_strategy("ddp", group_of_one()));
  Outcome outcome{trainer.fit(task, loader, [] { return test_loader(group_of_one()); }), {}, {}};
  for (const auto& [name, tensor] : state_dict(*net)) {
    outcome.state.emplace_back(name, tensor.clone());
  }
  outcome.averaged = trainer.averaged_state();
  return outcome;
}

void expect_equal_runs(const Outcome& a, const Outcome& b) {
  expect_equal_bits(a.state, b.state);
  expect_equal_bits(a.averaged, b.averaged);
  ASSERT_EQ(a.report.epochs.size(), b.report.epochs.size());
  for (std::size_t e = 0; e < a.report.epochs.size(); ++e) {
    EXPECT_EQ(a.report.epochs[e].train_loss, b.report.epochs[e].train_loss) << "epoch " << e;
    EXPECT_EQ(a.report.epochs[e].test->loss, b.report.epochs[e].test->loss) << "epoch " << e;
  }
}

// Five steps of an epoch have full batches, the sixth one does not.
TEST(TrainerGraph, WarmsUpCapturesOnceAndReplaysFullSteps) {
  std::string events;
  CountingListener listener;
  TrainerOptions run = with_graph(options(3), events);
  run.listeners = {&listener};
  const Outcome outcome = train_ddp(run);
  EXPECT_EQ(events,
            "wwwcrr"
            "rrrrr"
            "rrrrr");
  EXPECT_EQ(listener.events,
            "bsssssse"
            "sssssse"
            "sssssse"
            "E");
  const PhaseSeconds& phases = outcome.report.epochs[1].phases;
  EXPECT_GT(phases.forward, 0) << "of the last step, which was not replayed";
  EXPECT_EQ(outcome.report.epochs[1].steps, 6);
}

// The learning rate changes in each step, dropout draws new numbers, and Adam counts the steps.
TEST(TrainerGraph, GivesTheBitsOfARunWithout) {
  struct Case {
    const char* name;
    OptimizerOptions optimizer;
    std::int64_t accumulate = 1;
    std::optional<double> clip_norm{};
    std::optional<double> ema_decay{};
    const char* events;
    Precision precision = Precision::k32;
  };
  const Case cases[] = {
      {"sgd",
       SgdOptions{.lr = 0.05, .momentum = 0.9},
       1,
       {},
       {},
       "wwwcrr"
       "rrrrr"
       "rrrrr"},
      {"adamw", AdamWOptions{.lr = 1e-3}, 1, 0.5, 0.9,
       "wwwcrr"
       "rrrrr"
       "rrrrr"},
      // Two full steps per epoch, and a third one whose second batch is smaller.
      {"accumulated",
       AdamOptions{.lr = 1e-3},
       2,
       1e6,
       {},
       "ww"
       "wcr"
       "rr"},
      {"bf16",
       SgdOptions{.lr = 0.05},
       1,
       {},
       {},
       "wwwcrr"
       "rrrrr"
       "rrrrr",
       Precision::kBf16},
      // The initial loss scale is too large, so that the first steps are skipped.
      {"fp16",
       AdamOptions{.lr = 1e-3},
       1,
       {},
       {},
       "wwwcrr"
       "rrrrr"
       "rrrrr",
       Precision::kFp16},
  };
  for (const Case& each : cases) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, each.name);
    TrainerOptions run = options(3);
    run.optimizer = each.optimizer;
    run.accumulate_grad_batches = each.accumulate;
    run.gradient_clip_norm = each.clip_norm;
    run.ema_decay = each.ema_decay;
    run.precision = each.precision;
    run.grad_scaler.init_scale = 0x1p40;
    std::string events;
    const Outcome graph = train_ddp(with_graph(run, events));
    EXPECT_EQ(events, each.events);
    expect_equal_runs(train_ddp(run), graph);
  }
}

TEST(TrainerGraph, EvaluatesWithinAnEpochAndWatchesGradients) {
  TrainerOptions run = options(2);
  run.val_check_interval = 2;
  run.gradient_clip_value = 0.01;
  run.schedule = {.kind = ScheduleKind::kOneCycle};
  std::string events;
  expect_equal_runs(train_ddp(run), train_ddp(with_graph(run, events)));
  EXPECT_EQ(events,
            "wwwcrr"
            "rrrrr");
}

// The checkpoint contains the step counts, which were on the device. The resumed run captures a new
// graph.
TEST(TrainerGraph, ARunGoesOnFromItsCheckpoint) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.optimizer = AdamOptions{.lr = 1e-3};
  const Outcome whole = train_ddp(run);
  std::string events;
  TrainerOptions stopped = with_graph(run, events);
  stopped.checkpoints.directory = directory.path();
  stopped.max_steps = 5;
  train_ddp(stopped);
  TrainerOptions resumed = with_graph(run, events);
  resumed.checkpoints.directory = directory.path();
  resumed.resume = true;
  expect_equal_bits(whole.state, train_ddp(resumed).state);
  EXPECT_EQ(events,
            "wwwcrr"
            "wwwcrr");
}

// --- Rejected options

std::string refusal(TrainerOptions run, const std::string& strategy,
                    const StrategyOptions& strategy_options = {}) {
  run.cuda_graph = true;
  return message_of<ConfigError>([&] {
    train(run, group_of_one(), /*dropout=*/true, strategy, kGlobalBatch, strategy_options);
  });
}

TEST(TrainerGraph, RefusesWhatAReplayWouldNotDo) {
  EXPECT_THAT(refusal(options(1), "single"),
              HasSubstr("Trainer: cuda_graph needs a GPU, and this run is on cpu; remove "
                        "TrainerOptions::cuda_graph, or set TrainerOptions::device to cuda"));
  TrainerOptions anomaly = options(1);
  anomaly.detect_anomaly = true;
  EXPECT_THAT(refusal(anomaly, "single"),
              HasSubstr("cuda_graph and detect_anomaly cannot be combined: a replayed backward "
                        "pass does not check values for NaN; remove one of them"));
  TrainerOptions cycle = options(1);
  cycle.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  EXPECT_THAT(refusal(cycle, "single"),
              HasSubstr("cuda_graph and cycle_momentum cannot be combined"));
  StrategyOptions two;
  two.devices = {torch::kCPU, torch::kCPU};
  EXPECT_THAT(
      refusal(options(1), "dp", two),
      HasSubstr("Trainer: cuda_graph: strategy dp computes with several devices, threads or "
                "stages; use strategy ddp or single"));
  EXPECT_THAT(refusal(options(1), "zero1"),
              HasSubstr("Trainer: cuda_graph: strategy zero1 takes its learning rate"
                        " from the host"));
}

TEST(TrainerGraph, RefusesGroupsThatTheHostMoves) {
  const auto refusals = [](const std::string& backend) {
    return testing_support::run_group(2, backend, [](const ProcessGroup& group) {
      detail::make_step_graph(torch::Device(torch::kCUDA, 0), group);
    });
  };
  for (const std::string backend : {"shm", "gloo"}) {
    EXPECT_THAT(
        refusals(backend),
        testing::Each(HasSubstr("Trainer: cuda_graph cannot communicate over " + backend +
                                ", whose operations the host moves; use NCCL, with a GPU for "
                                "each rank")));
  }
}

TEST(TrainerGraph, ABuildWithoutCudaSaysSo) {
  if (at::hasCUDA()) GTEST_SKIP() << "this LibTorch has CUDA";
  EXPECT_THAT(message_of<ConfigError>(
                  [] { detail::make_step_graph(torch::Device(torch::kCUDA, 0), group_of_one()); }),
              HasSubstr("cuda_graph needs the CUDA build of LibTorch"));
}

struct ReadingTask final : ClassificationTask {
  using ClassificationTask::ClassificationTask;
  torch::Tensor training_step(const Batch& batch) override {
    const torch::Tensor loss = ClassificationTask::training_step(batch);
    if (loss.item<float>() > 1e6) throw Error("diverged");
    return loss;
  }
};

TEST(TrainerGraph, ATaskThatReadsOnTheHostIsNamed) {
  std::string events;
  ReadingTask task(MnistNet(MnistNetOptions{.fused_kernels = false}),
                   ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group_of_one());
  Trainer trainer(with_graph(options(1), events), make_strategy("ddp", group_of_one()));
  EXPECT_THAT(message_of<ConfigError>([&] { trainer.fit(task, loader); }),
              HasSubstr("Trainer: cuda_graph: the step cannot be recorded: operation not permitted "
                        "when stream is capturing: aten::item"));
  EXPECT_EQ(events, "wwwc");
}

TEST(TrainerGraph, AdviceFitsWhyAStepCannotBeRecorded) {
  const auto refusal_of = [](auto fail) {
    std::string events;
    std::int64_t steps = 0;
    CapturedStep step(std::make_unique<RecordedGraph>(&events), 1, 4, torch::kCPU,
                      [&](const std::vector<LoadedBatch>&) {
                        if (++steps > CapturedStep::kWarmUpSteps) fail();
                        return std::vector<torch::Tensor>();
                      });
    return message_of<ConfigError>([&] {
      for (std::int64_t i = 0; i <= CapturedStep::kWarmUpSteps; ++i) step.run();
    });
  };
  const std::string memory =
      refusal_of([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory"); });
  EXPECT_THAT(memory,
              testing::EndsWith("too little memory for recording the step: out of memory; use "
                                "smaller batches, or remove TrainerOptions::cuda_graph"));
  const std::string other = refusal_of([] { TORCH_CHECK(false, "shapes differ"); });
  EXPECT_THAT(other,
              testing::EndsWith(
                  "cannot be recorded: shapes differ; remove TrainerOptions::cuda_graph to see "
                  "whether the step runs without it"));
  EXPECT_THAT(refusal_of([] { TORCH_CHECK(false, "not permitted when stream is capturing"); }),
              testing::EndsWith("as item() does, or remove TrainerOptions::cuda_graph"));
}

// --- Changes after the recording

// Applies a change after the fourth step, which is the first one that is replayed.
struct ChangingListener final : Listener {
  explicit ChangingListener(std::function<void()> of_module) : change(std::move(of_module)) {}
  void on_step(const StepReport&) override {
    if (++steps == 4) change();
  }
  std::function<void()> change;
  int steps = 0;
};

// The refusal of a run in which a listener changes the net while steps are replayed.
std::string refusal_after(const std::function<void(MnistNet&)>& change, std::string& events) {
  MnistNet net(MnistNetOptions{.fused_kernels = false});
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group_of_one());
  ChangingListener listener([&] { change(net); });
  TrainerOptions run = with_graph(options(1), events);
  run.listeners = {&listener};
  Trainer trainer(run, make_strategy("ddp", group_of_one()));
  return message_of<ConfigError>([&] { trainer.fit(task, loader); });
}

TEST(TrainerGraph, RefusesToReplayAStepOfAModuleThatChanged) {
  struct Case {
    const char* expected;
    std::function<void(MnistNet&)> change;
  };
  const Case cases[] = {
      {"' was moved to other memory after the step was recorded, which replays would ignore",
       [](MnistNet& net) {
         for (torch::Tensor& each : net->parameters()) each.set_data(each.detach().clone());
       }},
      {"' got another gradient tensor after the step was recorded",
       [](MnistNet& net) { net->zero_grad(); }},
      {"' was frozen after the step was recorded",
       [](MnistNet& net) { net->parameters().back().set_requires_grad(false); }},
  };
  for (const Case& c : cases) {
    std::string events;
    EXPECT_THAT(refusal_after(c.change, events),
                AllOf(HasSubstr("Trainer: cuda_graph: parameter '"), HasSubstr(c.expected)));
    EXPECT_EQ(events, "wwwcr");
  }
}

TEST(RecordedMemory, NamesEveryChangeThatAReplayDoesNotSee) {
  struct Case {
    const char* expected;  // "" for none
    std::function<void(torch::nn::Sequential&, torch::nn::BatchNorm1d&)> change;
  };
  const Case cases[] = {
      {"",
       [](auto& net, auto&) {
         const torch::NoGradGuard no_grad;
         for (torch::Tensor& each : net->parameters()) each.fill_(2);
         for (const torch::Tensor& each : net->parameters()) each.mutable_grad().zero_();
       }},
      {"",  // as AveragedWeights does
       [](auto&, auto& norm) {
         const torch::Tensor own = norm->weight.detach();
         norm->weight.set_data(own.clone());
         norm->weight.set_data(own);
       }},
      {"parameter '0.weight' was moved to other memory",
       [](auto& net, auto&) { net->to(torch::kFloat64); }},
      {"parameter '1.weight' was moved to other memory",
       [](auto&, auto& norm) { norm->weight.set_data(norm->weight.detach().narrow(0, 0, 1)); }},
      {"parameter '1.bias' got another gradient tensor",
       [](auto&, auto& norm) { norm->bias.mutable_grad() = norm->bias.grad().clone(); }},
      {"parameter '1.bias' was frozen",
       [](auto&, auto& norm) { norm->bias.requires_grad_(false); }},
      {"parameter '2.weight' was registered or replaced",
       [](auto& net, auto&) { net->push_back(torch::nn::Linear(2, 2)); }},
      {"buffer '1.running_var' was moved to other memory",
       [](auto&, auto& norm) { norm->running_var.set_data(torch::ones({2})); }},
  };
  for (const Case& c : cases) {
    torch::nn::BatchNorm1d norm(2);
    torch::nn::Sequential net(torch::nn::Linear(2, 2), norm);
    net->forward(torch::rand({4, 2})).square().sum().backward();
    const RecordedMemory memory(*net);
    c.change(net, norm);
    const std::string message = message_of<ConfigError>([&] { memory.require_unchanged(); });
    EXPECT_THAT(message, HasSubstr(*c.expected == '\0' ? "nothing was thrown" : c.expected));
  }
}

// A replay would not compute the gradient.
TEST(RecordedMemory, NamesAParameterThatWasUnfrozen) {
  torch::nn::Linear layer(2, 2);
  layer->bias.requires_grad_(false);
  const RecordedMemory memory(*layer);
  EXPECT_EQ(message_of<ConfigError>([&] { memory.require_unchanged(); }), "nothing was thrown");
  layer->bias.requires_grad_(true);
  EXPECT_EQ(message_of<ConfigError>([&] { memory.require_unchanged(); }),
            "Trainer: cuda_graph: parameter 'bias' was unfrozen after the step was recorded, which "
            "replays would ignore; change the module before training, or remove "
            "TrainerOptions::cuda_graph");
}

// --- Batches

LoadedBatch batch_of(std::int64_t size, at::IntArrayRef image,
                     torch::ScalarType type = torch::kFloat32) {
  std::vector<std::int64_t> shape = {size};
  shape.insert(shape.end(), image.begin(), image.end());
  LoadedBatch batch;
  batch.store(Batch{.images = torch::rand(shape).to(type),
                    .labels = torch::randint(10, {size}, torch::kInt64),
                    .size = size});
  return batch;
}

TEST(CapturedStep, CopiesBatchesToOnePlace) {
  std::string events;
  std::vector<const void*> places;
  std::vector<torch::Tensor> seen;
  CapturedStep step(std::make_unique<RecordedGraph>(&events), /*parts=*/1, /*batch_size=*/4,
                    torch::kCPU, [&](const std::vector<LoadedBatch>& batches) {
                      const torch::Tensor images = batches[0].batch<Batch>().images;
                      places.push_back(images.data_ptr());
                      return std::vector<torch::Tensor>{images.sum()};
                    });
  for (int i = 0; i < 7; ++i) {
    const LoadedBatch batch = batch_of(4, {1, 2, 2});
    ASSERT_TRUE(step.takes(batch, 4));
    step.load(0, batch);
    EXPECT_TRUE(step.run().at(0).equal(batch.batch<Batch>().images.sum())) << i;
  }
  EXPECT_EQ(events, "wwwcrrrr");
  EXPECT_EQ(places.size(), 4U) << "replays call nothing";
  EXPECT_THAT(places, testing::Each(places[0]));
}

TEST(CapturedStep, LeavesOutSmallBatchesAndRefusesOtherShapes) {
  std::string events;
  CapturedStep step(std::make_unique<RecordedGraph>(&events), 1, 4, torch::kCPU,
                    [](const std::vector<LoadedBatch>&) { return std::vector<torch::Tensor>(); });
  EXPECT_FALSE(step.takes(batch_of(3, {1, 2, 2}), 3));
  step.load(0, batch_of(4, {1, 2, 2}));
  EXPECT_TRUE(step.takes(batch_of(4, {1, 2, 2}), 4));
  EXPECT_FALSE(step.takes(batch_of(1, {1, 2, 2}), 1));
  EXPECT_THAT(
      message_of<ConfigError>([&] { step.takes(batch_of(4, {1, 3, 2}), 4); }),
      HasSubstr("Trainer: cuda_graph needs full batches of one shape and type, but tensor 1 "
                "of a batch is Float [4, 1, 3, 2], and those before were Float "
                "[4, 1, 2, 2]; remove TrainerOptions::cuda_graph"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { step.takes(batch_of(4, {1, 2, 2}, torch::kDouble), 4); }),
      HasSubstr("tensor 1 of a batch is Double"));
  LoadedBatch longer = batch_of(4, {1, 2, 2});
  longer.tensors.push_back(torch::zeros({4}));
  EXPECT_THAT(message_of<ConfigError>([&] { step.takes(longer, 4); }),
              HasSubstr("a batch has 3 tensors, and those before had 2"));
}

}  // namespace
}  // namespace lockstep::train
