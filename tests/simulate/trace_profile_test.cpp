#include <lockstep/simulate/trace_profile.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::simulate {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

// The run.json of a run with 32 images per rank.
std::string record_of(const std::string& strategy = "ddp", int ranks = 2) {
  return str(R"({"recipe": "net", "strategy": ")", strategy, R"(", "world_size": )", ranks,
             R"(, "global_batch": )", 32 * ranks, R"(, "backend": "shm", "device": "cpu",
             "threads_per_rank": 3, "usable_processors": 8})");
}

constexpr const char* kAccepted = "nothing was thrown";

// Details of a traced rank that most tests leave at their defaults.
struct TracedDetails {
  int wait = 0;                  // microseconds that a second batch waits during forward
  std::string parameters = "3";  // the number of parameters in the first bucket
  int pauses = 0;                // after how many of the first steps something else follows
  int longer = 0;                // by how many microseconds each step takes longer than the last
  bool begins_late = false;      // the first step's backward is missing
  bool accumulates = false;      // a backward before the last one
  int buckets = 2;
  std::string last_bytes = "8000";  // size of the second bucket
  int slower = 0;                   // by how many microseconds each forward takes longer
};

// A rank whose steps have known times, in microseconds from their start. Forward takes 1,000 (1,100
// on rank 1) and backward 2,000. Gradients arrive from 100 after its start. One bucket is ready
// after 800 and waits 50 for its turn, another is ready when backward ends. An exposed reduction
// takes 300, the update 200, the next batch 40, and the gaps in between 10.
class TracedRank {
 public:
  TracedRank(int rank, int steps, TracedDetails details = {})
      : trace_{.rank = rank}, details_(std::move(details)) {
    int begin = 0;
    for (int i = 0; i < steps; ++i) {
      add_step(begin, (rank == 1 ? 100 : 0) + details_.slower * i, i);
      begin += 3550 + details_.longer * i;
      if (i >= details_.pauses) continue;
      add(i % 2 == 0 ? "evaluation" : "checkpoint", "phase", begin, 90'000, "training");
      begin += 100'000;
    }
  }
  const RankTrace& trace() const { return trace_; }

 private:
  void add(const std::string& name, const std::string& category, int begin, int length,
           const std::string& track, const std::map<std::string, std::string>& arguments = {},
           const std::string& collective = {}) {
    const auto at = [](int microseconds) {
      return Clock::time_point(std::chrono::microseconds(microseconds));
    };
    trace_.spans.push_back(
        {name, category, at(begin), at(begin + length), track, arguments, collective});
  }

  void add_step(int begin, int late, int number) {
    const int backward = begin + 1000 + late, end = backward + 2000, reduced = end + 300 - late;
    add("step", "step", begin, 3500, "training");
    add("forward", "phase", begin + 5, 990 + late, "training");
    if (details_.wait > 0) add("wait for data", "phase", begin + 200, details_.wait, "training");
    if (details_.accumulates) {
      add("backward", "phase", begin + 100, 300, "training");
      add("backward", "backward", begin + 120, 200, "backward");
    }
    if (number > 0 || !details_.begins_late) {
      add("backward", "phase", backward, reduced - backward, "training");
    }
    add("optimizer", "phase", reduced, 200, "training");
    add("wait for data", "phase", begin + 3505, 40, "training");
    add("backward", "backward", backward + 100, 1900, "backward");
    add("exposed communication", "communication", end, reduced - end, "backward");
    add("waits for its turn", "communication", backward + 800, 50, "bucket 0");
    const auto reduction = [&](int bucket, int from, int length, const char* bytes,
                               const char* parameters) {
      add("reduction", "communication", from, length, str("bucket ", bucket),
          {{"bytes", bytes}, {"parameters", parameters}}, str("step ", number, " bucket ", bucket));
    };
    reduction(0, backward + 850, 400, "4000", details_.parameters.c_str());
    if (details_.buckets < 2) return;
    reduction(1, end, reduced - end, details_.last_bytes.c_str(), "1");
  }

  RankTrace trace_;
  TracedDetails details_;
};

class TraceProfileTest : public ::testing::Test {
 protected:
  void write(int steps, const TracedDetails& first = {}, const TracedDetails& second = {}) {
    folder_.write("run.json", record_of());
    write_chrome_trace(folder_ / "trace.json",
                       {TracedRank(0, steps, first).trace(), TracedRank(1, steps, second).trace()});
  }
  std::string refusal(const std::string& file = "") const {
    return message_of<Error>([&] { find_step_profile(folder_ / file); });
  }
  TemporaryDirectory folder_;
};

TEST_F(TraceProfileTest, HasTheMediansOfAStep) {
  write(6);
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_EQ(profile.name, "net");
  EXPECT_EQ(profile.backend, "shm");
  EXPECT_EQ(profile.ranks, 2);
  EXPECT_EQ(profile.batch_per_rank, 32);
  EXPECT_EQ(profile.processors, 8);
  EXPECT_EQ(profile.threads_per_rank, 3);
  EXPECT_EQ(profile.steps, 6);
  constexpr double kMicro = 1e-6, kClose = 1e-9;
  EXPECT_NEAR(profile.step_seconds, 3550 * kMicro, kClose);
  EXPECT_NEAR(profile.data_seconds, 40 * kMicro, kClose);
  EXPECT_NEAR(profile.forward_seconds, 1050 * kMicro, kClose);  // the mean of both ranks
  EXPECT_NEAR(profile.backward_seconds, 2000 * kMicro, kClose);
  EXPECT_NEAR(profile.exposed_seconds, 250 * kMicro, kClose);
  EXPECT_NEAR(profile.optimizer_seconds, 200 * kMicro, kClose);
  EXPECT_NEAR(profile.other_seconds, 10 * kMicro, kClose);
  EXPECT_NEAR(profile.straggler_seconds, 50 * kMicro, kClose);
  EXPECT_NEAR(profile.step_low_seconds, 3550 * kMicro, kClose);
  ASSERT_EQ(profile.buckets.size(), 2U);
  EXPECT_DOUBLE_EQ(profile.buckets[0].bytes, 4000);
  EXPECT_EQ(profile.buckets[0].parameters, 3);
  EXPECT_NEAR(profile.buckets[0].ready_seconds, 800 * kMicro, kClose);
  EXPECT_NEAR(profile.buckets[1].ready_seconds, 2000 * kMicro, kClose);
}

// Waits for accumulated batches happen within the step, but do not count as forward.
TEST_F(TraceProfileTest, CountsAWaitWithinTheStepOnce) {
  write(4, {.wait = 70}, {.wait = 20});
  const StepProfile profile = read_trace_profile(folder_.path());
  constexpr double kMicro = 1e-6, kClose = 1e-9;
  EXPECT_NEAR(profile.data_seconds, (40 + 45) * kMicro, kClose);
  EXPECT_NEAR(profile.forward_seconds, (1050 - 45) * kMicro, kClose);
  EXPECT_NEAR(profile.other_seconds, 10 * kMicro, kClose);
  EXPECT_NEAR(profile.straggler_seconds, (50 + 25) * kMicro, kClose);
  EXPECT_NEAR(profile.compute_seconds() + profile.exposed_seconds, profile.step_seconds, kClose);
}

// An evaluation or a checkpoint follows two of the steps.
TEST_F(TraceProfileTest, LeavesOutTheTimeOfOtherWork) {
  write(4, {.pauses = 2}, {.pauses = 2});
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_NEAR(profile.step_seconds, 3550e-6, 1e-9);
  EXPECT_NEAR(profile.step_high_seconds, 3550e-6, 1e-9);
  EXPECT_NEAR(profile.data_seconds, 40e-6, 1e-9);
  EXPECT_NEAR(profile.other_seconds, 10e-6, 1e-9);
  EXPECT_EQ(profile.steps, 4);
}

TEST_F(TraceProfileTest, HasTheQuartilesOfItsSteps) {
  write(6, {.longer = 10}, {.longer = 10});
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_NEAR(profile.step_low_seconds, 3560e-6, 1e-9);
  EXPECT_NEAR(profile.step_seconds, 3570e-6, 1e-9);
  EXPECT_NEAR(profile.step_high_seconds, 3580e-6, 1e-9);
  EXPECT_NEAR(profile.other_seconds, 30e-6, 1e-9);
}

TEST_F(TraceProfileTest, LeavesOutAStepInWhichTheTraceBegins) {
  write(6, {.begins_late = true}, {.begins_late = true});
  EXPECT_EQ(read_trace_profile(folder_.path()).steps, 5);
  write(4, {.begins_late = true}, {.begins_late = true});
  EXPECT_EQ(read_trace_profile(folder_.path()).steps, 3);
  write(3, {.begins_late = true}, {});
  EXPECT_THAT(refusal(), HasSubstr("it has 2 whole steps of rank 0; at least 3 are needed"));
  write(3, {}, {.begins_late = true});
  EXPECT_THAT(refusal(), HasSubstr("it has 2 whole steps of rank 1; at least 3 are needed"));
}

// With gradient accumulation, the last backward counts, and the others count as forward.
TEST_F(TraceProfileTest, TakesTheLastBackwardOfAStep) {
  write(4, {.accumulates = true}, {.accumulates = true});
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_NEAR(profile.forward_seconds, 1050e-6, 1e-9);
  EXPECT_NEAR(profile.backward_seconds, 2000e-6, 1e-9);
  EXPECT_NEAR(profile.buckets[0].ready_seconds, 800e-6, 1e-9);
}

TEST_F(TraceProfileTest, HasTheBucketsThatAllRanksReduce) {
  write(4, {.last_bytes = "0"}, {.last_bytes = "0"});  // sparse gradients have no size
  const StepProfile profile = read_trace_profile(folder_.path());
  ASSERT_EQ(profile.buckets.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.buckets[0].bytes, 4000);
  write(4, {}, {.buckets = 1});
  EXPECT_THAT(refusal(), HasSubstr("trace.json: its ranks have different numbers of buckets"));
}

// The processors of a host that computes on GPUs are not what its ranks would share.
TEST_F(TraceProfileTest, TakesTheProcessorsOfRunsThatComputeOnThem) {
  write(4);
  folder_.write("run.json", R"({"recipe": "net", "strategy": "ddp", "world_size": 2,
    "global_batch": 7, "backend": "nccl", "device": "cuda:0", "threads_per_rank": 0,
    "usable_processors": 8})");
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_EQ(profile.processors, 0);
  EXPECT_EQ(profile.threads_per_rank, 1);
  EXPECT_EQ(profile.batch_per_rank, 3);
  EXPECT_EQ(profile.backend, "nccl");
  for (const char* device : {"", R"(, "device": "cpu")"}) {  // of an earlier version
    folder_.write("run.json", str(R"({"recipe": "net", "strategy": "ddp", "world_size": 2,
      "global_batch": 8, "backend": "shm")",
                                  device, "}"));
    EXPECT_EQ(read_trace_profile(folder_.path()).processors, 0) << "not known";
    EXPECT_EQ(read_trace_profile(folder_.path()).threads_per_rank, 1);
  }
}

TEST_F(TraceProfileTest, KeepsEveryNumberOfAProfile) {
  StepProfile written{.name = "net",
                      .strategy = "ddp",
                      .backend = "gloo",
                      .ranks = 3,
                      .batch_per_rank = 4,
                      .processors = 5,
                      .threads_per_rank = 6,
                      .steps = 7,
                      .data_seconds = 0.1,
                      .forward_seconds = 0.2,
                      .backward_seconds = 0.3,
                      .optimizer_seconds = 0.4,
                      .other_seconds = 0.5,
                      .straggler_seconds = 0.6,
                      .buckets = {{.bytes = 8, .ready_seconds = 0.25, .parameters = 2}},
                      .step_seconds = 0.7,
                      .step_low_seconds = 0.8,
                      .step_high_seconds = 0.9,
                      .exposed_seconds = 1.1};
  folder_.write("profile.json", to_json(written));
  const StepProfile read = read_step_profile(folder_ / "profile.json");
  EXPECT_EQ(to_json(read), to_json(written));
  EXPECT_EQ(read.backend, "gloo");
  EXPECT_EQ(read.ranks, 3);
  EXPECT_EQ(read.steps, 7);
  EXPECT_DOUBLE_EQ(read.data_seconds, 0.1);
  EXPECT_DOUBLE_EQ(read.forward_seconds, 0.2);
  EXPECT_DOUBLE_EQ(read.backward_seconds, 0.3);
  EXPECT_DOUBLE_EQ(read.optimizer_seconds, 0.4);
  EXPECT_DOUBLE_EQ(read.other_seconds, 0.5);
  EXPECT_DOUBLE_EQ(read.straggler_seconds, 0.6);
  EXPECT_DOUBLE_EQ(read.step_low_seconds, 0.8);
  EXPECT_DOUBLE_EQ(read.step_high_seconds, 0.9);
  EXPECT_DOUBLE_EQ(read.exposed_seconds, 1.1);
  EXPECT_DOUBLE_EQ(read.compute_seconds(), 1.5);
  EXPECT_DOUBLE_EQ(read.buckets[0].ready_seconds, 0.25);
  EXPECT_EQ(read.buckets[0].parameters, 2);
}

TEST_F(TraceProfileTest, RefusesNumbersThatCannotBe) {
  const auto refusal_of = [](const auto& change) {
    StepProfile profile{.strategy = "ddp", .backward_seconds = 1};
    profile.buckets = {{.bytes = 8, .ready_seconds = 0.5}, {.bytes = 8, .ready_seconds = 1}};
    change(profile);
    return message_of<ConfigError>([&] { validate(profile, "it"); });
  };
  EXPECT_EQ(refusal_of([](StepProfile&) {}), "nothing was thrown");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.data_seconds = -1; }),
            "it: data_seconds must be at least 0, got -1");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.exposed_seconds = std::nan(""); }),
            "it: exposed_seconds must be at least 0, got nan");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.other_seconds = HUGE_VAL; }),
            "it: other_seconds must be at least 0, got inf");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.buckets[1].bytes = HUGE_VAL; }),
            "it: a bucket must have bytes and parameters, got inf and 1");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.buckets[1].bytes = std::nan(""); }),
            "it: a bucket must have bytes and parameters, got nan and 1");
  EXPECT_THAT(refusal_of([](StepProfile& to) { to.buckets[0].ready_seconds = std::nan(""); }),
              HasSubstr("before backward ends at 1 s, got nan"));
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.buckets.clear(); }),
            "it: there is no bucket of gradients");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.ranks = 0; }),
            "it: ranks must be at least 1, got 0");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.threads_per_rank = 0; }),
            "it: threads_per_rank must be from 1 to 1048576, got 0");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.threads_per_rank = (1 << 20) + 1; }),
            "it: threads_per_rank must be from 1 to 1048576, got 1048577");
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.threads_per_rank = 1 << 20; }),
            "nothing was thrown");
  EXPECT_EQ(refusal_of([](StepProfile& to) {
              to.backward_seconds = 0;
              to.step_seconds = 1;
            }),
            "it: a step of this profile takes no time");
  EXPECT_THAT(
      refusal_of([](StepProfile& to) { to.buckets[1].ready_seconds = 0.4; }),
      HasSubstr("it: buckets must be ready one behind the other, and before backward ends"));
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.buckets[1].ready_seconds = 0.5; }),
            "nothing was thrown");
  EXPECT_THAT(refusal_of([](StepProfile& to) { to.buckets[0].ready_seconds = -0.1; }),
              HasSubstr("got -0.1"));
  EXPECT_THAT(refusal_of([](StepProfile& to) { to.buckets[0].parameters = 0; }),
              HasSubstr("it: a bucket must have bytes and parameters, got 8 and 0"));
  EXPECT_EQ(refusal_of([](StepProfile& to) { to.buckets[0].parameters = 8; }),
            "nothing was thrown");
}

// In such a run, the measured update is already that of one rank's shard.
TEST_F(TraceProfileTest, RefusesARunOfZero1) {
  write(4);
  folder_.write("run.json", record_of("zero1"));
  EXPECT_THAT(
      refusal(),
      HasSubstr("run.json: the update of a zero1 run is one rank's share and has the "
                "gather in it; trace a run of strategy ddp, from which zero1 can be predicted"));
  const std::string file = "zero1-flat-buckets-25-MiB.json";  // the name that `bench step` gives it
  std::filesystem::rename(folder_ / "trace.json", folder_ / file);
  EXPECT_THAT(refusal(file), HasSubstr("25-MiB.json: the update of a zero1 run is one rank's"));
}

TEST_F(TraceProfileTest, RefusesParametersThatCannotBe) {
  const std::map<std::string, std::string> refusals = {
      {"1e30", "trace.json: parameters of a bucket must be a whole number, got '1e30'"},
      {"99999999999999999999", "trace.json: parameters of a bucket must be a whole number"},
      {"4001",
       "trace.json: a bucket must have at most 1000000 parameters, and no more than bytes, got "
       "4001 in 4000 bytes"}};
  for (const auto& [parameters, expected] : refusals) {
    write(4, {.parameters = parameters}, {.parameters = parameters});
    EXPECT_THAT(refusal(), HasSubstr(expected)) << parameters;
  }
}

// A trace of `bench step` has no run.json beside it.
TEST_F(TraceProfileTest, IsReadFromATraceAlone) {
  write(4);
  const StepProfile profile = find_step_profile(folder_ / "trace.json");
  EXPECT_EQ(profile.name, "trace");
  EXPECT_EQ(profile.strategy, "ddp");
  EXPECT_EQ(profile.ranks, 2);
  EXPECT_NEAR(profile.step_seconds, 3550e-6, 1e-9);
}

TEST_F(TraceProfileTest, IsReadFromAProfile) {
  write(4);
  const StepProfile written = read_trace_profile(folder_.path());
  folder_.write("profile.json", to_json(written));
  const StepProfile read = find_step_profile(folder_ / "profile.json");
  EXPECT_EQ(read.name, written.name);
  EXPECT_EQ(read.batch_per_rank, 32);
  EXPECT_EQ(read.processors, 8);
  EXPECT_EQ(read.threads_per_rank, 3);
  EXPECT_DOUBLE_EQ(read.compute_seconds(), written.compute_seconds());
  EXPECT_DOUBLE_EQ(read.straggler_seconds, written.straggler_seconds);
  EXPECT_EQ(read.buckets.size(), 2U);
  EXPECT_DOUBLE_EQ(read.bytes(), 12000);
}

TEST_F(TraceProfileTest, NamesWhatIsMissing) {
  EXPECT_THAT(refusal(),
              HasSubstr("run.json: give the folder of a `lockstep train --strategy ddp"));
  folder_.write("run.json", record_of());
  EXPECT_THAT(refusal(),
              HasSubstr("trace.json: give the folder of a `lockstep train --strategy ddp"));
  folder_.write("run.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not JSON: line 1, column 2"));
  folder_.write("run.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not what Lockstep writes: 'recipe' is missing"));
  folder_.write("run.json", record_of("pipeline", 1));
  EXPECT_THAT(refusal(),
              HasSubstr("run.json: a run of strategy pipeline has no buckets of gradients"));
  write(2);
  EXPECT_THAT(refusal(),
              HasSubstr("trace.json: it has 2 whole steps of rank 0; at least 3 are needed"));
  folder_.write("trace.json",
                R"({"traceEvents": [{"ph": "X", "cat": "step", "name": "step 1", "pid": 0, "tid": 0,
                                   "ts": 0, "dur": 5, "args": {}}]})");
  EXPECT_THAT(refusal(), HasSubstr("it has no reductions of buckets; train on at least 2 ranks"));
  write(4);
  folder_.write("run.json", record_of("ddp", 4));
  EXPECT_THAT(refusal(),
              HasSubstr("trace.json: it has 2 ranks and run.json beside it 4: it is another "
                        "run's"));
  folder_.write("trace.json", R"({"traceEvents": []})");
  EXPECT_THAT(refusal(), HasSubstr("trace.json: it has no events"));
}

TEST_F(TraceProfileTest, RefusesAProfileThatCannotBe) {
  const auto refusal_of = [&](const std::string& buckets,
                              const std::string& strategy = "ddp") -> std::string {
    folder_.write("profile.json", str(R"({"strategy": ")", strategy,
                                      R"(", "backward_seconds": 1, "buckets": )", buckets, "}"));
    return refusal("profile.json");
  };
  EXPECT_EQ(refusal_of(R"([{"bytes": 4, "ready_seconds": 0.5}])"), kAccepted);
  EXPECT_EQ(message_of<DataError>([&] { read_step_profile(folder_ / "none.json"); }),
            "cannot read " + (folder_ / "none.json").string());
  EXPECT_THAT(refusal_of("[]"), HasSubstr("there is no bucket of gradients"));
  EXPECT_THAT(refusal_of(R"([{"bytes": 4, "ready_seconds": 1.5}])"),
              HasSubstr("before backward ends at 1 s, got 1.5"));
  EXPECT_THAT(refusal_of(R"([{"bytes": 0, "ready_seconds": 0.5}])"),
              HasSubstr("must have bytes and parameters"));
  EXPECT_EQ(refusal_of(R"([{"bytes": 4e6, "ready_seconds": 0.5, "parameters": 1000000}])"),
            kAccepted);
  EXPECT_THAT(refusal_of(R"([{"bytes": 4e7, "ready_seconds": 0.5, "parameters": 1000001}])"),
              HasSubstr("at most 1000000 parameters, and no more than bytes, got 1000001"));
  EXPECT_THAT(refusal_of(R"([{"bytes": 4, "ready_seconds": 0.5, "parameters": 5}])"),
              HasSubstr("no more than bytes, got 5 in 4 bytes"));
  EXPECT_THAT(refusal_of(R"([{"bytes": 4, "ready_seconds": 0.5}])", "zero1"),
              HasSubstr("profile.json: strategy must be ddp, got 'zero1'"));
  EXPECT_THAT(refusal_of(R"([{"ready_seconds": 0.5}])"),
              HasSubstr("profile.json is not the profile of a step: 'bytes' is missing"));
}

// Rank 0 lacks its first step. Its four steps are the last four of rank 1, which is always 100
// microseconds later.
TEST_F(TraceProfileTest, ComparesTheLastStepsOfRanks) {
  write(5, {.begins_late = true, .slower = 20}, {.slower = 20});
  const StepProfile profile = read_trace_profile(folder_.path());
  EXPECT_EQ(profile.steps, 4);
  EXPECT_NEAR(profile.straggler_seconds, 50e-6, 1e-9);
}

// A step counts only if the trace has all its parts. Of five steps, the third lacks one.
TEST_F(TraceProfileTest, LeavesOutAStepThatLacksAPart) {
  const auto begin = Clock::time_point(std::chrono::microseconds(2 * 3550));
  const auto end = Clock::time_point(std::chrono::microseconds(3 * 3550));
  const std::pair<const char*, const char*> parts[] = {{"backward", "training"},
                                                       {"backward", "backward"},
                                                       {"optimizer", "training"},
                                                       {"reduction", "bucket 1"}};
  for (const auto& [name, track] : parts) {
    RankTrace trace = TracedRank(0, 5).trace();
    const std::size_t removed = std::erase_if(trace.spans, [&, name = name,
                                                            track = track](const Span& span) {
      return span.name == name && span.track == track && span.begin >= begin && span.begin < end;
    });
    ASSERT_EQ(removed, 1U) << name;
    write_chrome_trace(folder_ / "part.json", {trace});
    const StepProfile profile = find_step_profile(folder_ / "part.json");
    EXPECT_EQ(profile.steps, 4) << name << " of " << track;
    EXPECT_NEAR(profile.forward_seconds, 1000e-6, 1e-9) << name << " of " << track;
  }
}

TEST_F(TraceProfileTest, ExposesNothingWhereEveryReductionIsHidden) {
  RankTrace trace = TracedRank(0, 4).trace();
  std::erase_if(trace.spans, [](const Span& span) { return span.name == "exposed communication"; });
  write_chrome_trace(folder_ / "hidden.json", {trace});
  const StepProfile profile = find_step_profile(folder_ / "hidden.json");
  EXPECT_EQ(profile.ranks, 1);
  EXPECT_DOUBLE_EQ(profile.exposed_seconds, 0);
  EXPECT_DOUBLE_EQ(profile.straggler_seconds, 0);
  EXPECT_NEAR(profile.forward_seconds, 1000e-6, 1e-9);
  EXPECT_NEAR(profile.other_seconds, (10 + 300) * 1e-6, 1e-9);
}

TEST_F(TraceProfileTest, IsReadFromSpansInAnyOrder) {
  write(5, {.wait = 70, .longer = 10}, {.wait = 20, .longer = 10});
  const std::string expected = to_json(read_trace_profile(folder_.path()));
  std::vector<RankTrace> ranks = {TracedRank(0, 5, {.wait = 70, .longer = 10}).trace(),
                                  TracedRank(1, 5, {.wait = 20, .longer = 10}).trace()};
  for (RankTrace& rank : ranks) std::ranges::reverse(rank.spans);
  write_chrome_trace(folder_ / "trace.json", ranks);
  EXPECT_EQ(to_json(read_trace_profile(folder_.path())), expected);
}

TEST_F(TraceProfileTest, RefusesNumbersThatCannotBeRead) {
  write(4, {.last_bytes = "many"}, {.last_bytes = "many"});
  EXPECT_THAT(refusal(), HasSubstr("trace.json is not what Lockstep writes: a number cannot be "
                                   "read"));
  write(4);
  folder_.write("run.json", record_of("ddp", 0));
  EXPECT_THAT(refusal(), HasSubstr("it has 2 ranks and run.json beside it 0"));
}

}  // namespace
}  // namespace lockstep::simulate
