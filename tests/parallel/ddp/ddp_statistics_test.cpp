#include <lockstep/parallel/ddp/ddp_statistics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/parallel/base/trace_of_ranks.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::parallel {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::TemporaryDirectory;

// Two buckets with one layer each. Backward fills the bucket of the second layer first.
struct TwoLayersImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return second(first(x)); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(64, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 64));
};
TORCH_MODULE(TwoLayers);

constexpr DdpOptions kTwoBuckets = {.bucket_cap_mb = 1e-3, .first_bucket_cap_mb = 1e-3};

void train(DistributedDataParallel<TwoLayers>& ddp, int steps, Milliseconds delay) {
  for (int step = 0; step < steps; ++step) {
    const auto until = Clock::now() + delay;
    while (Clock::now() < until) {
    }
    ddp.forward(torch::ones({4, 64})).sum().backward();
  }
}

TEST(DdpTiming, TellsBucketsTimesAndTheSlowRank) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    TwoLayers net;
    DistributedDataParallel ddp(net, group, kTwoBuckets);
    train(ddp, 20, Milliseconds(group.rank() == 1 ? 20 : 0));
    const DdpStatistics s = ddp.statistics();
    const auto expect = [](bool holds, const char* what) {
      if (!holds) throw Error(what);
    };
    expect(s.steps == 20 && s.measured >= 18 && s.measured <= 20, "steps");
    expect(s.buckets.size() == 2, "buckets");
    std::int64_t bytes = 0;
    std::size_t parameters = 0;
    for (const auto& bucket : s.buckets) {
      bytes += bucket.bytes;
      parameters += bucket.parameters;
      expect(bucket.dtype == "Float", "dtype");
      expect(bucket.ready_ms >= 0 && bucket.start_ms >= bucket.ready_ms &&
                 bucket.end_ms >= bucket.start_ms,
             "order of a bucket's times");
    }
    expect(bytes == 2 * (64 * 64 + 64) * 4 && parameters == 4, "sizes");
    expect(s.buckets[0].ready_ms <= s.buckets[1].ready_ms, "order of the buckets");
    expect(s.hidden_ms <= s.communication_ms, "hidden communication is a part of all of it");
    expect(
        std::abs(s.communication_ms - s.hidden_ms - s.exposed_ms) < 0.5 * s.communication_ms + 0.1,
        "hidden and exposed are the communication");
    expect(s.ranks.size() == 2 && s.ranks[1].rank == 1, "ranks");
    // Rank 1 makes rank 0 wait for 20 ms per step. A busy machine lengthens this or hides some of
    // it.
    expect(s.ranks[1].compute_ms >= 20 && s.ranks[0].compute_ms < s.ranks[1].compute_ms, "compute");
    expect(s.ranks[0].wait_ms > 2 && s.ranks[0].wait_ms > s.ranks[1].wait_ms, "wait");
    expect(s.skew_ms > 2, "skew");
    expect(group.rank() == 1 || s.exposed_ms > 2, "rank 0 waits at the end of backward");
    const std::string table = to_table(s);
    for (const char* part : {"20 steps", "exposed", "waits for slowest ms", "Float", "KiB"}) {
      if (table.find(part) == std::string::npos) throw Error(part + (" is missing in " + table));
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The median of one step is the step itself, so that its parts must add up.
TEST(DdpStatistics, CommunicationIsHiddenOrExposed) {
  using std::this_thread::sleep_for;
  detail::StepRecorder recorder;
  recorder.begin(2);
  recorder.start(0);
  sleep_for(Milliseconds(1));
  recorder.end(0);
  sleep_for(Milliseconds(1));  // no bucket is in progress
  recorder.start(1);
  sleep_for(Milliseconds(1));
  recorder.computed();
  sleep_for(Milliseconds(1));
  recorder.end(1);
  recorder.reduced();
  const detail::StepTimes step = recorder.last().at(0);
  const auto ms = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const double first_bucket = ms(step.buckets[0].end - step.buckets[0].start);
  const torch::Tensor parameter = torch::zeros({1});
  const std::vector<GradBucket> buckets = {{.index = 0, .parameters = {parameter}},
                                           {.index = 1, .parameters = {parameter}}};
  const auto errors = run_group(1, "shm", [&](ProcessGroup group) {
    const DdpStatistics s = detail::summarize(buckets, recorder, group);
    EXPECT_EQ(s.measured, 1);
    EXPECT_GE(first_bucket, 1);
    EXPECT_NEAR(s.hidden_ms, first_bucket + ms(step.computed - step.buckets[1].start), 1e-9);
    EXPECT_NEAR(s.exposed_ms, ms(step.reduced - step.computed), 1e-9);
    EXPECT_NEAR(s.communication_ms + ms(step.reduced - step.buckets[1].end),
                s.hidden_ms + s.exposed_ms, 1e-9);
  });
  EXPECT_EQ(errors, no_errors(1));
}

TEST(DdpStatistics, CountsWithoutASingleStep) {
  const auto errors = run_group(2, "gloo", [&](ProcessGroup group) {
    TwoLayers net;
    DistributedDataParallel ddp(net, group, kTwoBuckets);
    const DdpStatistics s = ddp.statistics();
    if (s.steps != 0 || s.measured != 0 || s.backward_ms != 0 || s.buckets.size() != 2 || s.rebuilt)
      throw Error("not 0");
    if (to_table(s).empty()) throw Error("table");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpStatistics, WritesATimelineOfAllRanks) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "ddp.json";
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    TwoLayers net;
    DistributedDataParallel ddp(net, group, kTwoBuckets);
    train(ddp, 5, Milliseconds(0));
    ddp.write_trace(path);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  const MappedFile file(path);
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  EXPECT_THAT(text, AllOf(HasSubstr("\"traceEvents\""), HasSubstr("\"rank 1 on "),
                          HasSubstr("\"bucket 1\""), HasSubstr("\"step 5\""),
                          HasSubstr("\"backward\""), HasSubstr("\"reduction\"")));
}

TEST(DdpStatistics, AllRanksHearThatThereIsNoTimeline) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    TwoLayers net;
    DistributedDataParallel ddp(net, group);
    ddp.write_trace("/dev/null/trace.json");
  });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("/dev/null/trace.json"));
}

// JSON must be UTF-8, so a byte that is none is written as text.
TEST(TraceOfRanks, KeepsANameThatIsNoText) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "ranks.json";
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Span span;
    span.name = group.rank() == 1 ? "\xff" : "step 1";
    write_trace_of_ranks(path, {span}, group);
  });
  EXPECT_EQ(errors, no_errors(2));
  const MappedFile file(path);
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  EXPECT_THAT(text, AllOf(HasSubstr("\"step 1\""), HasSubstr("\"\\\\xff\"")));
}

TEST(DdpStatistics, TheMedianOfTwoStepsIsTheirMean) {
  detail::StepRecorder recorder;
  for (int step = 0; step < 2; ++step) {
    recorder.begin(1);
    recorder.ready(0);
    recorder.start(0);
    recorder.end(0);
    recorder.computed();
    recorder.reduced();
  }
  const auto steps = recorder.last();
  ASSERT_EQ(steps.size(), 2U);
  const auto both =
      (steps[0].computed - steps[0].backward) + (steps[1].computed - steps[1].backward);
  const GradBucket bucket{.parameters = {torch::zeros({1})}};
  double backward_ms = 0;
  const auto errors = run_group(1, "shm", [&](ProcessGroup group) {
    backward_ms = detail::summarize({bucket}, recorder, group).backward_ms;
  });
  EXPECT_EQ(errors, no_errors(1));
  using FloatMilliseconds = std::chrono::duration<double, std::milli>;
  EXPECT_DOUBLE_EQ(backward_ms, FloatMilliseconds(both).count() / 2);
}

TEST(StepRecorder, KeepsTheLastSteps) {
  detail::StepRecorder recorder;
  for (int step = 0; step < 300; ++step) {
    recorder.begin(2);
    recorder.ready(0);
    recorder.start(0);
    recorder.ready(1);
    recorder.start(1);
    recorder.end(0);
    recorder.computed();
    recorder.reduced();
  }
  EXPECT_EQ(recorder.steps(), 300);
  const auto steps = recorder.last();
  ASSERT_EQ(steps.size(), detail::StepRecorder::kSteps - 1);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].buckets.size(), 2U);
    EXPECT_LE(steps[i].begin, steps[i].backward);
    EXPECT_LE(steps[i].buckets[0].end, steps[i].computed);
    EXPECT_EQ(steps[i].buckets[1].end, steps[i].reduced);  // end() was not called for it
    if (i > 0) {
      EXPECT_EQ(steps[i].begin, steps[i - 1].reduced);
    }
  }
  recorder.clear();
  EXPECT_TRUE(recorder.last().empty());
  EXPECT_EQ(recorder.steps(), 300);
}

}  // namespace
}  // namespace lockstep::parallel
