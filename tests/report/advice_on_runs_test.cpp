// The advice for real runs with one problem, and for the same runs without it. Each run has two
// processes as ranks and writes the files of `lockstep train --trace`.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/report/advice/advice.h>
#include <lockstep/report/run_record.h>
#include <tests/support/processor_time.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::testing_support {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kBatchOfRank = 4;
constexpr std::int64_t kSteps = 8;

struct Circumstances {
  std::string backend = "shm";
  milliseconds image{0};    ///< time to read one image
  milliseconds compute{0};  ///< additional computing time per step
  int late_rank = 1;
  milliseconds late{0};  ///< additional computing time of that rank
  std::int64_t layers = 1;
  std::int64_t width = 8;  ///< each layer has width * width + width parameters
  std::optional<double> bucket_cap_mb{};
  int processors = 2;  ///< for both ranks
  std::int64_t epochs = 2;
  milliseconds busy{0};  ///< processor time that a step uses in addition to `compute`
};

// Delays each read of another data set's images.
class SlowImages final : public ImageSource {
 public:
  explicit SlowImages(milliseconds image) : image_(image) {}
  std::int64_t size() const override { return train::train_images().size(); }
  void read(std::int64_t index, ImageReader& reader) const override {
    std::this_thread::sleep_for(image_);
    train::train_images().read(index, reader);
  }
  std::int64_t label(std::int64_t index) const override {
    return train::train_images().label(index);
  }

 private:
  const milliseconds image_;
};

// Computes until this thread has used this amount of processor time.
void compute_for(milliseconds time) {
  const double begin = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
  while (processor_seconds(CLOCK_THREAD_CPUTIME_ID) - begin <
         1e-3 * static_cast<double>(time.count())) {
  }
}

// While it exists, two threads per processor compute, which the ranks see as another program.
class OtherProgram {
 public:
  OtherProgram() {
    for (std::size_t i = 0; i < 2 * available_cpus().size(); ++i) {
      threads_.emplace_back([](const std::stop_token& end) {
        while (!end.stop_requested()) {
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

// A net of many equal layers whose size and computing time can be set independently.
class SlowTask final : public Task {
 public:
  SlowTask(const Circumstances& how, int rank)
      : seconds_(how.compute + (rank == how.late_rank ? how.late : milliseconds(0))),
        busy_(how.busy),
        width_(how.width) {
    for (std::int64_t i = 0; i < how.layers; ++i)
      net_->push_back(torch::nn::Linear(width_, width_));
  }
  torch::nn::Module& module() override { return *net_; }
  torch::Tensor training_step(const Batch& batch) override {
    std::this_thread::sleep_for(seconds_);
    compute_for(busy_);
    return net_->forward(batch.images.flatten(1).narrow(1, 0, 8).mean().expand({1, width_})).mean();
  }
  void evaluation_step(const Batch&, Metrics&) override {}

 private:
  const milliseconds seconds_;
  const milliseconds busy_;
  const std::int64_t width_;
  torch::nn::Sequential net_;
};

void train_under(const Circumstances& how, const std::filesystem::path& folder,
                 ProcessGroup group) {
  at::set_num_threads(1);
  const ImageDataset images("digits", train::train_images().shape(),
                            train::train_images().num_classes(),
                            std::make_shared<SlowImages>(how.image));
  TrainerOptions run = train::options(how.epochs);
  run.limit_train_batches = kSteps;
  run.trace.file = folder / "trace.json";
  RunRecord record(folder, {.local_ranks = 2, .processors = how.processors});
  if (group.rank() == 0) run.listeners = {&record};
  SlowTask task(how, group.rank());
  Loader loader(images, DistributedSampler(images.size(), {.rank = group.rank(), .world_size = 2}),
                train::kNormalize, {.batch_size = kBatchOfRank, .threads = 1});
  Trainer(run, make_strategy("ddp", group, {.bucket_cap_mb = how.bucket_cap_mb})).fit(task, loader);
}

std::vector<report::Advice> advice_for(const Circumstances& how) {
  const TemporaryDirectory folder;
  const auto errors = run_group_processes(
      2, how.backend, [&](ProcessGroup group) { train_under(how, folder.path(), group); });
  EXPECT_EQ(errors, no_errors(2));
  return report::advise(report::read_run_facts(folder.path()));
}

constexpr const char* kOtherPrograms = "other programs";

// Without other programs, which a busy machine has and which take turns with any other limit.
std::vector<std::string> limits_of(const std::vector<report::Advice>& advice) {
  std::vector<std::string> limits;
  for (const report::Advice& each : advice) {
    if (each.limit != kOtherPrograms) limits.push_back(each.limit);
  }
  return limits;
}

// The advice for the first of several equal runs whose limits match, or for the last run. On a busy
// machine a rank may lose its processor for longer than a step takes, which adds a limit to that
// run or hides the one in question.
std::vector<report::Advice> advice_with(
    const testing::Matcher<const std::vector<std::string>&>& limits, const Circumstances& how) {
  constexpr int kMostRuns = 5;
  std::vector<report::Advice> advice;
  for (int run = 0; run < kMostRuns; ++run) {
    advice = advice_for(how);
    if (testing::Value(limits_of(advice), limits)) break;
  }
  EXPECT_THAT(limits_of(advice), limits) << "in " << kMostRuns << " runs";
  return advice;
}

report::Advice advice_on(const std::string& limit, const std::vector<report::Advice>& advice) {
  const auto found = std::ranges::find(advice, limit, &report::Advice::limit);
  return found == advice.end() ? report::Advice() : *found;
}

TEST(AdviceTiming, HasNothingToSayOfARunThatComputes) {
  advice_with(ElementsAre("compute"), {.compute = milliseconds(60)});
}

TEST(AdviceTiming, NamesALoaderThatIsTooSlow) {
  // On a busy machine the ranks also wait for each other.
  const auto loader = advice_on(
      "loader",
      advice_with(Contains("loader"), {.image = milliseconds(10), .compute = milliseconds(20)}));
  EXPECT_NEAR(loader.share, 0.5, 0.3);  // four images take 40 ms, of which 20 are hidden
  EXPECT_THAT(loader.option, HasSubstr("--workers"));
}

// A run of one epoch with eight steps. The first batch takes 40 ms; computation hides the others.
TEST(AdviceTiming, DoesNotBlameALoaderForItsFirstBatch) {
  advice_with(Not(Contains("loader")),
              {.image = milliseconds(10), .compute = milliseconds(60), .epochs = 1});
  advice_with(Contains("loader"),
              {.image = milliseconds(15), .compute = milliseconds(20), .epochs = 1});
}

TEST(AdviceTiming, NamesOtherProgramsThatTakeProcessors) {
  if (!processor_wait_seconds() || !busy_seconds(available_cpus())) {
    GTEST_SKIP() << "this kernel does not tell who waits for a processor";
  }
  const auto processors = static_cast<int>(available_cpus().size());
  std::vector<report::Advice> advice;
  {
    const OtherProgram other;
    advice = advice_for({.processors = processors, .busy = milliseconds(20)});
  }
  EXPECT_THAT(advice_on(kOtherPrograms, advice).figures, HasSubstr("Other programs used "));
}

TEST(AdviceTiming, NamesTheRankThatIsLate) {
  const auto straggler = advice_on(
      "straggler",
      advice_with(Contains("straggler"), {.compute = milliseconds(20), .late = milliseconds(30)}));
  EXPECT_THAT(straggler.figures, HasSubstr("for rank 1."));
  EXPECT_THAT(straggler.option, HasSubstr("the processors or the GPU of rank 1"));
}

// When rank 0 is late it waits for no other rank, so that the communication time in run.json, which
// is its own, shows nothing.
TEST(AdviceTiming, NamesRank0WhereItIsLate) {
  const auto straggler = advice_on(
      "straggler",
      advice_with(Contains("straggler"),
                  {.compute = milliseconds(20), .late_rank = 0, .late = milliseconds(30)}));
  EXPECT_THAT(straggler.figures, HasSubstr("for rank 0."));
}

// Sends 64 MiB of gradients over the loopback device.
TEST(AdviceTiming, NamesMessagesThatComputingDoesNotHide) {
  advice_with(testing::AllOf(Contains("communication"), Not(Contains("small buckets"))),
              {.backend = "gloo", .compute = milliseconds(2), .layers = 1, .width = 4096});
}

TEST(AdviceTiming, NamesBucketsThatAreTooSmall) {
  Circumstances many{.backend = "gloo", .compute = milliseconds(2), .layers = 150, .width = 16};
  advice_with(Not(Contains("small buckets")), many);
  many.bucket_cap_mb = 1e-4;
  const auto buckets = advice_on("small buckets", advice_with(Contains("small buckets"), many));
  EXPECT_THAT(buckets.figures, HasSubstr("A step has 150 reductions of "));
  EXPECT_THAT(buckets.option, HasSubstr("--bucket-cap-mb"));
}

TEST(AdviceTiming, NamesRanksThatShareAProcessor) {
  advice_with(Contains("oversubscription"), {.compute = milliseconds(40), .processors = 1});
}

}  // namespace
}  // namespace lockstep::testing_support
