// Runs on a simulated device: which operations block the host, and that phases are measured in the
// device's time.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/train/captured_step.h>
#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/measuring/phase_timer.h>
#include <tests/support/captured_log.h>
#include <tests/support/far_device/far_device.h>
#include <tests/train/staged_net.h>
#include <tests/train/step_loop.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
namespace far_device = testing_support::far_device;

class DeviceRun : public testing::Test {
 protected:
  DeviceRun() { far_device::install(); }

  static ProcessGroup group() {
    return init_process_group({.device = far_device::device(), .environment = WorkerEnvironment{}});
  }
};

// Reads values that a careless program would read.
class CarelessTask final : public ClassificationTask {
 public:
  using ClassificationTask::ClassificationTask;
  torch::Tensor training_step(const Batch& batch) override {
    const torch::Tensor loss = ClassificationTask::training_step(batch);
    largest = std::max(largest, loss.item<double>());
    return loss;
  }
  double largest = 0;
};

// --- A step --------------------------------------------------------------------------------------

// The names of waits in three steps, after the initial ones.
std::vector<std::string> waits_of_steps(const StepCase& given,
                                        std::unique_ptr<ClassificationTask> task,
                                        ProcessGroup group) {
  StepLoop loop(given, std::move(task), std::move(group), far_device::device());
  loop.steps(2);
  const std::size_t before = far_device::waits().size();
  loop.steps(3);
  std::vector<std::string> waits = far_device::waits();
  waits.erase(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(before));
  return waits;
}

TEST_F(DeviceRun, StepsWaitForNothing) {
  const OptimizerOptions adam = AdamWOptions{.lr = 0.001};
  for (const StepCase& each :
       {StepCase{.name = "ddp"}, StepCase{.name = "ddp, bf16", .precision = Precision::kBf16},
        StepCase{.name = "ddp, fp16", .precision = Precision::kFp16},
        StepCase{.name = "ddp, fp16, adamw", .precision = Precision::kFp16, .optimizer = adam},
        StepCase{.name = "ddp, adamw", .optimizer = adam},
        StepCase{.name = "zero1, adamw", .strategy = "zero1", .optimizer = adam},
        StepCase{.name = "zero1, fp16, adamw",
                 .strategy = "zero1",
                 .precision = Precision::kFp16,
                 .optimizer = adam},
        StepCase{.name = "single, bf16", .strategy = "single", .precision = Precision::kBf16}}) {
    EXPECT_THAT(waits_of_steps(each, digits_task(), group()), IsEmpty()) << each.name;
  }
}

TEST_F(DeviceRun, AnItemInAStepIsAWait) {
  EXPECT_THAT(waits_of_steps({.name = "careless"}, digits_task<CarelessTask>(), group()),
              ElementsAre("item", "item", "item"));
}

// --- A run ---------------------------------------------------------------------------------------

struct StepListener : Listener {
  void on_step(const StepReport& report) override { reports.push_back(report); }
  void on_epoch_end(const EpochReport& report) override { epochs.push_back(report); }
  std::vector<StepReport> reports;
  std::vector<EpochReport> epochs;
};

struct DeviceOutcome {
  StepListener heard;
  std::map<std::string, int> waits;
};

// Without evaluations. Ignores the loader's thread, which waits for its own stream.
DeviceOutcome run_task(ClassificationTask task, const StagedRun& given, torch::Device device,
                       std::int64_t batches, std::int64_t log_every = 1,
                       OnNan on_nan = OnNan::kWarn, bool listens = true) {
  ProcessGroup group = init_process_group({.device = device, .environment = WorkerEnvironment{}});
  Loader loader(train_images(), DistributedSampler(kImages, {.rank = 0, .world_size = 1}),
                kNormalize, {.batch_size = 10, .device = device});
  DeviceOutcome outcome;
  TrainerOptions run = options(2);
  run.device = device;
  run.limit_train_batches = batches;
  run.limit_val_batches = 0;
  run.log_every_n_steps = log_every;
  run.on_nan = on_nan;
  if (listens) run.listeners = {&outcome.heard};
  const std::size_t before = far_device::waits().size();
  Trainer(run, make_strategy(given.strategy, group, given.options))
      .fit(task, loader, Trainer::LoaderFactory());
  const std::vector<std::string> waits = far_device::waits();
  for (std::size_t i = before; i < waits.size(); ++i) {
    if (waits[i] != "wait for a stream") ++outcome.waits[waits[i]];
  }
  return outcome;
}

DeviceOutcome run_on(torch::Device device, std::int64_t batches, std::int64_t log_every = 1) {
  return run_task(*digits_task(), {.strategy = "ddp"}, device, batches, log_every);
}

TEST_F(DeviceRun, WaitsAsOftenForManyStepsAsForFew) {
  const DeviceOutcome few = run_on(far_device::device(), 3);
  const DeviceOutcome many = run_on(far_device::device(), 9);
  EXPECT_THAT(many.heard.reports, SizeIs(18));
  EXPECT_EQ(few.waits, many.waits);
}

TEST_F(DeviceRun, TellsEachStepsOwnLoss) {
  const DeviceOutcome expected = run_on(torch::kCPU, 5);
  const DeviceOutcome heard = run_on(far_device::device(), 5);
  ASSERT_EQ(heard.heard.reports.size(), expected.heard.reports.size());
  for (std::size_t i = 0; i < expected.heard.reports.size(); ++i) {
    const StepReport &ours = heard.heard.reports[i], &theirs = expected.heard.reports[i];
    EXPECT_EQ(ours.step, theirs.step);
    EXPECT_EQ(ours.images, theirs.images);
    EXPECT_NEAR(ours.loss, theirs.loss, 1e-4) << "step " << i;
  }
  const DeviceOutcome rarely = run_on(far_device::device(), 5, /*log_every=*/2);
  ASSERT_THAT(rarely.heard.reports, SizeIs(6)) << "steps 2, 4 and the last one of each epoch";
  EXPECT_EQ(rarely.heard.reports[1].loss, heard.heard.reports[3].loss);
}

// Counts its forwards.
struct CountedNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    ++forwards;
    return net->forward(x);
  }
  MnistNet net = register_module("net", same_net());
  int forwards = 0;
};

// Notes how many forwards there were when it heard of each step.
struct EagerListener : Listener {
  explicit EagerListener(const CountedNetImpl& net_) : net(net_) {}
  void on_step(const StepReport&) override { forwards.push_back(net.forwards); }
  const CountedNetImpl& net;
  std::vector<int> forwards;
};

// A loss that has arrived is reported while the epoch goes on.
TEST_F(DeviceRun, TellsAStepLongBeforeTheEpochEnds) {
  constexpr int kSteps = 9;
  for (const torch::Device device : {torch::Device(torch::kCPU), far_device::device()}) {
    const auto net = std::make_shared<CountedNetImpl>();
    ClassificationTask task(torch::nn::ModuleHolder<CountedNetImpl>(net),
                            ClassificationLoss::kNegativeLogLikelihood);
    Loader loader(train_images(), DistributedSampler(kImages, {.rank = 0, .world_size = 1}),
                  kNormalize, {.batch_size = 10, .device = device});
    EagerListener heard(*net);
    TrainerOptions run = options(1);
    run.device = device;
    run.limit_train_batches = kSteps;
    run.limit_val_batches = 0;
    run.log_every_n_steps = 1;
    run.listeners = {&heard};
    Trainer(run, make_strategy("ddp", init_process_group(
                                          {.device = device, .environment = WorkerEnvironment{}})))
        .fit(task, loader, Trainer::LoaderFactory());
    ASSERT_THAT(heard.forwards, SizeIs(kSteps)) << device;
    for (int step = 1; step <= kSteps; ++step) {
      const int forwards = heard.forwards[static_cast<std::size_t>(step - 1)];
      EXPECT_GE(forwards, step) << device;
      if (device.is_cpu()) {
        EXPECT_EQ(forwards, step);
      }
    }
    EXPECT_LT(heard.forwards.front(), kSteps) << device;
    EXPECT_EQ(heard.forwards.back(), kSteps) << device;
  }
}

// Its output is NaN from the third step on.
struct PoisonedNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor output = net->forward(x);
    return ++steps == 3 ? output * std::nan("") : output;
  }
  MnistNet net = register_module("net", same_net());
  int steps = 0;
};

// On a device, a loss is looked at when it has arrived for a report, and at the end of the epoch.
TEST_F(DeviceRun, WarnsOfALossThatIsNotFinite) {
  for (const torch::Device device : {torch::Device(torch::kCPU), far_device::device()}) {
    const auto warnings = [&](std::int64_t log_every, bool listens) {
      const testing_support::CapturedLog log;
      run_task({torch::nn::ModuleHolder<PoisonedNetImpl>(std::make_shared<PoisonedNetImpl>()),
                ClassificationLoss::kNegativeLogLikelihood},
               {.strategy = "ddp"}, device, 5, log_every, OnNan::kWarn, listens);
      std::vector<std::string> lines = log.lines();
      std::erase_if(lines, [](const std::string& line) {
        return line.find("the loss is ") == std::string::npos;
      });
      return lines;
    };
    const std::string at_once = "nan in step 3 of epoch 1 (step 3 of the run); the run continues";
    EXPECT_THAT(warnings(1, true), ElementsAre(HasSubstr(at_once))) << device;
    EXPECT_THAT(warnings(4, true),
                ElementsAre(HasSubstr(device.is_cpu() ? at_once : "nan in step 4 of epoch 1")))
        << device;
    EXPECT_THAT(warnings(1, false),
                ElementsAre(HasSubstr(device.is_cpu() ? at_once : "nan in epoch 1; the run")))
        << device;
  }
}

// Fills pinned memory, which each buffer of the loader reuses.
class PinnedImages final : public BatchDataset<Batch> {
 public:
  std::int64_t size() const override { return kImages; }
  void get(const BatchRequest& request, Batch& batch) const override {
    if (!batch.images.defined()) {
      const auto pinned = torch::TensorOptions().pinned_memory(true);
      batch.images = torch::empty({10, 1, 28, 28}, pinned.dtype(torch::kFloat32));
      batch.labels = torch::empty({10}, pinned.dtype(torch::kInt64));
    }
    const std::int64_t first = request.indices.front();
    batch.images.fill_(static_cast<double>(first) / kImages);
    batch.labels.fill_(first % 10);
    batch.size = 10;
  }
};

// This loader does not know the device. It refills a buffer as soon as another batch is requested,
// so that each copy to the device must block.
TEST_F(DeviceRun, PinnedBatchesOfALoaderForTheCpuAreReadBeforeTheyChange) {
  const MnistNet net = same_net();
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader(std::make_shared<const PinnedImages>(),
                DistributedSampler(kImages, {.rank = 0, .world_size = 1}),
                {.batch_size = 10, .threads = 0});
  StepListener heard;
  TrainerOptions run = options(1);
  run.device = far_device::device();
  run.limit_val_batches = 0;
  run.listeners = {&heard};
  Trainer trainer(run, make_strategy("ddp", group()));
  const std::size_t before = far_device::waits().size();
  trainer.fit(task, loader, Trainer::LoaderFactory());
  const std::vector<std::string> waits = far_device::waits();
  ASSERT_THAT(heard.reports, SizeIs(11));
  EXPECT_GE(std::count(waits.begin() + static_cast<std::ptrdiff_t>(before), waits.end(),
                       "copy from the host"),
            2 * 11);
}

TEST_F(DeviceRun, ACapturedStepHasReadPinnedBatchesBeforeTheyChange) {
  CapturedStep step(nullptr, /*parts=*/1, /*batch_size=*/2, far_device::device(), {});
  const auto pinned = torch::TensorOptions().pinned_memory(true);
  const Batch batch{.images = torch::empty({2, 3}, pinned.dtype(torch::kFloat32)).fill_(1),
                    .labels = torch::empty({2}, pinned.dtype(torch::kInt64)).fill_(1),
                    .size = 2};
  LoadedBatch loaded;
  loaded.store(batch);
  const auto there = step.load(0, loaded).batch<Batch>();
  batch.images.fill_(2);
  batch.labels.fill_(2);
  EXPECT_TRUE(there.images.cpu().eq(1).all().item<bool>());
  EXPECT_TRUE(there.labels.cpu().eq(1).all().item<bool>());
}

// The simulated device's time advances in whole milliseconds. Phases are the mean of the workers.
void expect_time_of_device(const DeviceOutcome& outcome, int workers = 1) {
  ASSERT_THAT(outcome.heard.epochs, SizeIs(2));
  for (const EpochReport& epoch : outcome.heard.epochs) {
    const PhaseSeconds& phases = epoch.phases;
    for (const double seconds : {phases.forward, phases.backward, phases.optimizer}) {
      EXPECT_GT(seconds, 0.001);
    }
    for (const double seconds : {phases.data, phases.forward, phases.backward, phases.communication,
                                 phases.optimizer, epoch.first_batch_seconds}) {
      const double milliseconds = seconds * 1000 * workers;
      EXPECT_NEAR(milliseconds, std::round(milliseconds), 1e-6);
    }
  }
}

TEST_F(DeviceRun, PhasesAreTheDevicesTime) {
  expect_time_of_device(run_on(far_device::device(), 5));
}

// The checks of each step, and the copies of buffers, are work of the device.
TEST_F(DeviceRun, ChecksOfFiniteStepsBelongToTheOptimizer) {
  constexpr std::int64_t kSteps = 5;
  const auto seconds = [](OnNan on_nan) {
    const DeviceOutcome outcome = run_task(*digits_task(), {.strategy = "ddp"},
                                           far_device::device(), kSteps, /*log_every=*/1, on_nan);
    expect_time_of_device(outcome);
    return outcome.heard.epochs.at(1).phases;
  };
  const PhaseSeconds plain = seconds(OnNan::kWarn);
  const PhaseSeconds checked = seconds(OnNan::kSkip);
  EXPECT_GT(checked.optimizer, plain.optimizer + 0.001 * kSteps - 1e-6);
}

TEST_F(DeviceRun, PhasesOfAPipelineAreTheDevicesTime) {
  const StrategyOptions two{.devices = {far_device::device(0), far_device::device(0)},
                            .micro_batches = 2};
  const ClassificationTask task = make_staged_task(make_staged_net());
  expect_time_of_device(
      run_task(task, {.strategy = "pipeline", .options = two}, far_device::device(0), 5), 2);
}

// The host's clock measures the first stage. The run itself is on a CPU, so that only the strategy
// has times of a device. An epoch's report contains those of its last step.
TEST_F(DeviceRun, PhasesOfALaterStageOnADeviceAreInTheirEpoch) {
  const StrategyOptions two{.devices = {torch::kCPU, far_device::device(0)}, .micro_batches = 2};
  const ClassificationTask task = make_staged_task(make_staged_net());
  const DeviceOutcome outcome =
      run_task(task, {.strategy = "pipeline", .options = two}, torch::kCPU, 1);
  ASSERT_THAT(outcome.heard.epochs, SizeIs(2));
  for (const EpochReport& epoch : outcome.heard.epochs) {
    EXPECT_GT(epoch.phases.forward, 0.001);
    EXPECT_GT(epoch.phases.backward, 0.001);
  }
}

TEST_F(DeviceRun, ChecksOfACheckpointReadTheHostsCopies) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto on_device = [](double value) {
    return torch::full({2, 40'000}, value).to(far_device::device());
  };
  const StateDict training = {{"momentum", on_device(1)}};
  const CheckpointContent sound({{"weight", on_device(1)}, {"mask", on_device(-inf)}}, training,
                                {.recipe = "digits"});
  const CheckpointContent not_a_number(
      {{"weight", on_device(1)}, {"mask", on_device(std::nan(""))}}, training,
      {.recipe = "digits"});
  const CheckpointContent diverged({{"weight", on_device(1)}}, {{"mask", on_device(inf)}},
                                   {.recipe = "digits"});
  const std::size_t waits = far_device::waits().size();
  EXPECT_TRUE(sound.all_finite({"mask"}));
  EXPECT_FALSE(sound.all_finite({}));
  EXPECT_FALSE(not_a_number.all_finite({"mask"}));
  EXPECT_FALSE(diverged.all_finite({"mask"})) << "a state of the optimizer";
  EXPECT_EQ(far_device::waits().size(), waits);
}

TEST_F(DeviceRun, ATimerForgetsNothingAndKeepsFewEvents) {
  PhaseTimer timer(far_device::device());
  double seconds = 0;
  const torch::Tensor ones = torch::ones({4}, far_device::device());
  for (int i = 0; i < 1000; ++i) {
    const PhaseSecondsScope scope(seconds);
    ones.add_(1);
  }
  EXPECT_LT(timer.pending(), 1000U);
  timer.settle();
  EXPECT_EQ(timer.pending(), 0U);
  const double in_thousand = seconds;
  {
    const PhaseSecondsScope scope(seconds);
    ones.add_(1);
  }
  timer.settle();
  EXPECT_NEAR(in_thousand, 1000 * (seconds - in_thousand), 1e-6);
}

// Two threads may compute at once, and nothing in a recorded graph has a time.
TEST_F(DeviceRun, ATimerIsThatOfItsThreadWhileNothingIsRecorded) {
  EXPECT_EQ(PhaseTimer::current(), nullptr);
  PhaseTimer timer(far_device::device());
  EXPECT_EQ(PhaseTimer::current(), &timer);
  std::thread([] { EXPECT_EQ(PhaseTimer::current(), nullptr); }).join();
  {
    const CaptureScope capture;
    EXPECT_EQ(PhaseTimer::current(), nullptr);
  }
  EXPECT_EQ(PhaseTimer::current(), &timer);
}

TEST_F(DeviceRun, WithoutATimerTheHostsTimeIsAdded) {
  constexpr double kEarlier = 1000;
  double seconds = kEarlier;
  {
    const PhaseSecondsScope scope(seconds);
    // The clock of some machines advances in steps of 100 ns.
    for (const auto begin = Clock::now(); Clock::now() == begin;) continue;
  }
  EXPECT_EQ(PhaseTimer::current(), nullptr);
  EXPECT_GT(seconds, kEarlier);
}

}  // namespace
}  // namespace lockstep::train
