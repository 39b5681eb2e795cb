#include <lockstep/parallel/ddp/ddp_statistics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/parallel/base/trace_of_ranks.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/ddp/step_recorder.h>
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
    expect(s.exposed_ms >= 0, "exposed");  // medians, which do not add up to the communication
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

// A communication that has completed at once, or that completes only in wait().
class WorkOfAHook final : public Work {
 public:
  explicit WorkOfAHook(bool completed) : completed_(completed) {}
  void wait(std::optional<std::chrono::milliseconds>) override {
    // The clock of some machines advances in steps of 100 ns.
    for (const auto begin = Clock::now(); Clock::now() == begin;) continue;
  }
  bool is_completed() override { return completed_; }
  std::exception_ptr error() const override { return nullptr; }

 private:
  const bool completed_;
};

// On a CPU, a bucket that nobody has seen end within backward ends with the step.
TEST(DdpStatistics, ABucketEndsWhenItIsSeenToEndOrWithTheStep) {
  for (const bool completed : {true, false}) {
    TwoLayers net;
    DistributedDataParallel ddp(net, init_process_group({.environment = WorkerEnvironment{}}),
                                kTwoBuckets);
    ddp.register_comm_hook([&](GradBucket&) { return std::make_shared<WorkOfAHook>(completed); });
    for (int step = 0; step < 2; ++step) ddp.forward(torch::ones({4, 64})).sum().backward();
    const detail::StepTimes last = ddp.core().reducer()->times().last().back();
    ASSERT_EQ(last.buckets.size(), 2U);
    for (const detail::BucketTimes& bucket : last.buckets) {
      EXPECT_LE(bucket.ready, bucket.start);
      EXPECT_LE(bucket.start, bucket.end);
      EXPECT_LE(bucket.end, last.reduced);
      if (!completed) EXPECT_EQ(bucket.end, last.reduced);
    }
    EXPECT_LE(last.computed, last.reduced);
  }
}

// The total of all steps, also of those that were forgotten.
TEST(StepRecorder, AddsUpTheExposedTimeOfAllSteps) {
  detail::StepRecorder recorder;
  EXPECT_EQ(recorder.exposed_seconds(), 0);
  double expected = 0;
  for (std::size_t step = 0; step < 2 * detail::StepRecorder::kSteps; ++step) {
    recorder.begin(1);
    recorder.computed();
    recorder.reduced();
    const detail::StepTimes last = recorder.last().back();
    expected += std::chrono::duration<double>(last.reduced - last.computed).count();
    if (step % 100 == 50) recorder.clear();
  }
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(recorder.exposed_seconds(), expected, 1e-12);
}

// All times of a bucket count from the first gradient of the backward. Of three steps, the median
// is the second smallest.
TEST(DdpStatistics, DescribeEachBucketByItsMedians) {
  detail::StepRecorder recorder;
  for (int step = 0; step < 3; ++step) {
    recorder.begin(2);
    recorder.ready(1);
    recorder.ready(0);
    for (const std::size_t bucket : {0U, 1U}) recorder.start(bucket);
    recorder.end(0);
    recorder.computed();
    recorder.end(1);
    recorder.reduced();
  }
  const std::vector<detail::StepTimes> steps = recorder.last();
  ASSERT_EQ(steps.size(), 3U);
  const auto median_ms = [&](const auto& time_of) {
    std::vector<double> values;
    for (const detail::StepTimes& step : steps) {
      values.push_back(std::chrono::duration<double, std::milli>(time_of(step)).count());
    }
    std::sort(values.begin(), values.end());
    return values[1];
  };
  const torch::Tensor matrix = torch::zeros({3, 2}), vector = torch::zeros({5});
  const std::vector<GradBucket> buckets = {
      {.index = 0, .layout = 1, .gradients = {matrix, vector}, .parameters = {matrix, vector}},
      {.index = 1, .layout = 1, .parameters = {torch::zeros({4}, torch::kFloat64)}}};
  const auto errors = run_group(1, "shm", [&](ProcessGroup group) {
    const DdpStatistics s = detail::summarize(buckets, recorder, group);
    EXPECT_EQ(s.steps, 3);
    EXPECT_EQ(s.measured, 3);
    EXPECT_TRUE(s.rebuilt);
    EXPECT_DOUBLE_EQ(s.backward_ms,
                     median_ms([](const auto& step) { return step.computed - step.backward; }));
    EXPECT_DOUBLE_EQ(s.exposed_ms,
                     median_ms([](const auto& step) { return step.reduced - step.computed; }));
    ASSERT_EQ(s.buckets.size(), 2U);
    for (std::size_t b = 0; b < s.buckets.size(); ++b) {
      const BucketStatistics& bucket = s.buckets[b];
      EXPECT_EQ(bucket.index, b);
      EXPECT_EQ(bucket.parameters, b == 0 ? 2U : 1U);
      EXPECT_EQ(bucket.bytes, b == 0 ? (6 + 5) * 4 : 0);
      EXPECT_EQ(bucket.dtype, b == 0 ? "Float" : "Double");
      EXPECT_DOUBLE_EQ(bucket.ready_ms, median_ms([b](const auto& step) {
                         return step.buckets[b].ready - step.backward;
                       }));
      EXPECT_DOUBLE_EQ(bucket.start_ms, median_ms([b](const auto& step) {
                         return step.buckets[b].start - step.backward;
                       }));
      EXPECT_DOUBLE_EQ(bucket.end_ms, median_ms([b](const auto& step) {
                         return step.buckets[b].end - step.backward;
                       }));
    }
    ASSERT_EQ(s.ranks.size(), 1U);
    EXPECT_DOUBLE_EQ(s.ranks[0].compute_ms,
                     median_ms([](const auto& step) { return step.computed - step.begin; }));
    EXPECT_EQ(s.ranks[0].wait_ms, 0);
    EXPECT_EQ(s.skew_ms, 0);
  });
  EXPECT_EQ(errors, no_errors(1));
}

// A table with one space in place of several.
std::string squeezed_table(const DdpStatistics& statistics) {
  std::string table = to_table(statistics);
  const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  table.erase(std::unique(table.begin(), table.end(), both_blank), table.end());
  return table;
}

TEST(DdpStatistics, AreWrittenAsATable) {
  DdpStatistics s{.steps = 12,
                  .measured = 10,
                  .rebuilt = true,
                  .backward_ms = 2,
                  .communication_ms = 1.5,
                  .hidden_ms = 1.25,
                  .exposed_ms = 0.25,
                  .skew_ms = 9};
  const auto add_bucket = [&](std::size_t index, std::int64_t bytes, const char* dtype) {
    s.buckets.push_back({.index = index,
                         .parameters = 3,
                         .bytes = bytes,
                         .dtype = dtype,
                         .ready_ms = 0.5,
                         .start_ms = 0.75,
                         .end_ms = 1.125});
  };
  add_bucket(0, 1536, "Float");
  add_bucket(1, (1 << 20) - 1024, "Half");
  add_bucket(2, 1 << 20, "Double");
  add_bucket(3, 0, "Float");
  s.ranks = {{.rank = 0, .compute_ms = 4.5, .wait_ms = 0.5}, {.rank = 1, .compute_ms = 5}};
  EXPECT_EQ(squeezed_table(s),
            "12 steps, the last 10 measured; buckets in the order in which gradients arrived\n"
            "backward 2.000 ms; communication 1.500 ms: 1.250 hidden behind it, 0.250 exposed\n"
            "bucket parameters size dtype ready ms start ms end ms\n"
            " 0 3 1.5 KiB Float 0.500 0.750 1.125\n"
            " 1 3 1023.0 KiB Half 0.500 0.750 1.125\n"
            " 2 3 1.0 MiB Double 0.500 0.750 1.125\n"
            " 3 3 sparse Float 0.500 0.750 1.125\n"
            " rank computes ms waits for slowest ms\n"
            " 0 4.500 0.500\n"
            " 1 5.000 0.000\n");
  s.rebuilt = false;
  EXPECT_THAT(to_table(s), HasSubstr("buckets in reverse order of registration"));
}

// Rank 1 was measured from the last step on, which took it longer.
TEST(DdpStatistics, CompareTheLastStepsOfRanks) {
  std::array<detail::StepRecorder, 2> recorders;
  for (int step = 0; step < 3; ++step) {
    for (std::size_t rank = 0; rank < recorders.size(); ++rank) {
      if (rank == 1 && step < 2) continue;
      recorders[rank].begin(1);
      if (step == 0) std::this_thread::sleep_for(Milliseconds(5));
      recorders[rank].computed();
      recorders[rank].reduced();
    }
  }
  const auto last_compute = [&](std::size_t rank) {
    const detail::StepTimes step = recorders[rank].last().back();
    return std::chrono::duration<double, std::milli>(step.computed - step.begin).count();
  };
  const double longer = last_compute(1) - last_compute(0);
  ASSERT_GT(longer, 1) << "rank 1 also waited for the first step of rank 0";
  const GradBucket bucket{.parameters = {torch::zeros({1})}};
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const detail::StepRecorder& recorder = recorders[static_cast<std::size_t>(group.rank())];
    const DdpStatistics s = detail::summarize({bucket}, recorder, group);
    EXPECT_EQ(s.measured, group.rank() == 0 ? 3 : 1);
    ASSERT_EQ(s.ranks.size(), 2U);
    EXPECT_NEAR(s.ranks[0].wait_ms, longer, 1e-9);
    EXPECT_NEAR(s.ranks[1].wait_ms, 0, 1e-9);
    EXPECT_NEAR(s.ranks[1].compute_ms, last_compute(1), 1e-9);
    EXPECT_NEAR(s.skew_ms, s.ranks[1].compute_ms - s.ranks[0].compute_ms, 1e-9);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The second bucket is ready at once and waits for its turn; it has sparse gradients.
TEST(DdpStatistics, SpansShowTheQueueAndTheReductionOfEachBucket) {
  detail::StepRecorder recorder;
  for (int step = 0; step < 2; ++step) {
    recorder.begin(2);
    recorder.ready(1);
    std::this_thread::sleep_for(Milliseconds(1));
    recorder.start(1);
    recorder.end(1);
    recorder.computed();
    std::this_thread::sleep_for(Milliseconds(1));
    recorder.reduced();
  }
  const detail::StepTimes last = recorder.last().back();
  const torch::Tensor parameter = torch::zeros({3});
  const std::vector<GradBucket> buckets = {
      {.index = 0, .buffer = torch::zeros({16}), .parameters = {parameter, parameter}},
      {.index = 1, .parameters = {parameter}}};
  const std::vector<Span> spans = detail::ddp_spans(buckets, recorder, "world");
  const auto span_of_last = [&](const std::string& name, const std::string& track) {
    Span found;
    for (const Span& span : spans) {
      if (span.name == name && span.track == track) found = span;
    }
    return found;
  };
  EXPECT_EQ(span_of_last("step 2", "ddp").begin, last.begin);
  EXPECT_EQ(span_of_last("step 2", "ddp").end, last.reduced);
  EXPECT_EQ(span_of_last("backward", "backward").begin, last.backward);
  EXPECT_EQ(span_of_last("backward", "backward").end, last.computed);
  EXPECT_EQ(span_of_last("exposed communication", "backward").begin, last.computed);
  EXPECT_EQ(span_of_last("exposed communication", "backward").end, last.reduced);
  const Span turn = span_of_last("waits for its turn", "bucket 1");
  EXPECT_EQ(turn.begin, last.buckets[1].ready);
  EXPECT_EQ(turn.end, last.buckets[1].start);
  const Span dense = span_of_last("reduction", "bucket 0");
  EXPECT_EQ(dense.arguments.at("bytes"), "64");
  EXPECT_EQ(dense.arguments.at("parameters"), "2");
  EXPECT_EQ(dense.collective, "world step 2 bucket 0");
  const Span sparse = span_of_last("reduction", "bucket 1");
  EXPECT_EQ(sparse.begin, last.buckets[1].start);
  EXPECT_EQ(sparse.end, last.buckets[1].end);
  EXPECT_EQ(sparse.arguments.at("bytes"), "0");
  EXPECT_EQ(sparse.arguments.at("parameters"), "1");
  EXPECT_EQ(sparse.collective, "world step 2 bucket 1");
}

TEST(DdpStatistics, AreATable) {
  const DdpStatistics statistics{.steps = 300,
                                 .measured = 127,
                                 .rebuilt = true,
                                 .backward_ms = 10.5,
                                 .communication_ms = 4.25,
                                 .hidden_ms = 3,
                                 .exposed_ms = 1.25,
                                 .buckets = {{.index = 0,
                                              .parameters = 2,
                                              .bytes = 1536,
                                              .dtype = "Float",
                                              .ready_ms = 1,
                                              .start_ms = 1.5,
                                              .end_ms = 2.25},
                                             {.index = 1,
                                              .parameters = 10,
                                              .bytes = 1 << 20,
                                              .dtype = "BFloat16",
                                              .ready_ms = 2,
                                              .start_ms = 2.25,
                                              .end_ms = 4},
                                             {.index = 2,
                                              .parameters = 1,
                                              .bytes = 0,
                                              .dtype = "Float",
                                              .ready_ms = 3,
                                              .start_ms = 4,
                                              .end_ms = 5.5}},
                                 .ranks = {{.rank = 0, .compute_ms = 20, .wait_ms = 0.125},
                                           {.rank = 1, .compute_ms = 19.5, .wait_ms = 0.625}}};
  EXPECT_EQ(to_table(statistics),
            "300 steps, the last 127 measured; buckets in the order in which gradients arrived\n"
            "backward 10.500 ms; communication 4.250 ms: 3.000 hidden behind it, 1.250 exposed\n"
            "bucket parameters         size     dtype   ready ms   start ms     end ms\n"
            "     0          2      1.5 KiB     Float      1.000      1.500      2.250\n"
            "     1         10      1.0 MiB  BFloat16      2.000      2.250      4.000\n"
            "     2          1       sparse     Float      3.000      4.000      5.500\n"
            "  rank    computes ms   waits for slowest ms\n"
            "     0         20.000                  0.125\n"
            "     1         19.500                  0.625\n");
  EXPECT_THAT(to_table({.steps = 1}), HasSubstr("1 steps, the last 0 measured; buckets in reverse "
                                                "order of registration\n"));
}

}  // namespace
}  // namespace lockstep::parallel
