// `lockstep train --trace`: the activity of all ranks in the last steps, in one file.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/train_command.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

class TrainTrace : public TrainCommand {
 protected:
  // Trains one epoch of 4 steps and returns its trace.
  json trace_of(std::vector<std::string> more) const {
    std::vector<std::string> words = {"mnist",  "--max-epochs", "1",     "--batch-size",
                                      "16",     "--threads",    "1",     "--accelerator",
                                      "cpu",    "--overwrite",  "--out", in_scratch("run"),
                                      "--trace"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = train(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(read_text(scratch / "run/trace.json"));
  }
  static std::vector<json> events(const json& trace, const std::string& phase, int rank) {
    std::vector<json> found;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase && event.at("pid") == rank) found.push_back(event);
    }
    return found;
  }
  static std::vector<std::string> names(const std::vector<json>& events,
                                        const std::string& category) {
    std::vector<std::string> found;
    for (const json& event : events) {
      if (event.at("cat") == category) found.push_back(event.at("name"));
    }
    return found;
  }
  static std::set<std::string> tracks(const json& trace, int rank) {
    std::set<std::string> found;
    for (const json& event : events(trace, "M", rank)) {
      if (event.at("name") == "thread_name")
        found.insert(event.at("args").at("name").get<std::string>());
    }
    return found;
  }
};

TEST_F(TrainTrace, HasTheLastStepsOfAllRanks) {
  const json trace = trace_of({"--nproc-per-node", "2", "--trace-steps", "2"});
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<json> spans = events(trace, "X", rank);
    // The step before them also appears if part of it ended after the first of them began.
    EXPECT_THAT(names(spans, "step"), IsSupersetOf({"step 3", "step 4"})) << rank;
    EXPECT_THAT(names(spans, "step"),
                Each(::testing::AnyOf("step 2", "step 3", "step 4", "step 5")));
    const std::vector<std::string> phases = names(spans, "phase");
    for (const char* phase : {"wait for data", "forward", "backward", "optimizer"}) {
      EXPECT_EQ(std::count(phases.begin(), phases.end(), phase), 2) << phase << " of " << rank;
    }
    // Each step sets learning rates and seeds, and adds up the loss.
    EXPECT_EQ(std::count(phases.begin(), phases.end(), "bookkeeping"), 4) << rank;
    EXPECT_THAT(phases, ::testing::Contains("evaluation"));
    EXPECT_THAT(tracks(trace, rank),
                IsSupersetOf({std::string("training"), std::string("bucket 0")}));
    for (const json& span : spans) EXPECT_GE(span.at("dur"), 0.0) << span;
  }
  // In each reduction, a flow leads from the rank that came last to the other one.
  std::map<int, std::set<std::string>> flows;
  for (int rank = 0; rank < 2; ++rank) {
    for (const char* phase : {"s", "f"}) {
      for (const json& event : events(trace, phase, rank)) {
        flows[event.at("id").get<int>()].insert(phase + std::to_string(rank));
      }
    }
  }
  EXPECT_GE(flows.size(), 2U);
  for (const auto& [id, ends] : flows) {
    EXPECT_TRUE(ends == std::set<std::string>({"s0", "f1"}) ||
                ends == std::set<std::string>({"s1", "f0"}))
        << id;
  }
  // Both ranks are on one host and share its clock.
  for (const json& clock : trace.at("otherData").at("clocks")) {
    EXPECT_EQ(clock.at("offset_us"), 0.0);
    EXPECT_GE(clock.at("uncertainty_us"), 0.0);
    EXPECT_FALSE(clock.at("host").get<std::string>().empty());
  }
}

// A step with accumulated batches has one reduction: the last step has two forwards, but sends its
// bucket only once.
TEST_F(TrainTrace, HasOneReductionForTheBatchesOfAStep) {
  const json trace =
      trace_of({"--nproc-per-node", "2", "--accumulate-grad-batches", "2", "--trace-steps", "1"});
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<json> spans = events(trace, "X", rank);
    const std::vector<std::string> phases = names(spans, "phase");
    EXPECT_EQ(std::count(phases.begin(), phases.end(), "forward"), 2) << rank;
    EXPECT_EQ(std::count(phases.begin(), phases.end(), "backward"), 2) << rank;
    const std::vector<std::string> sent = names(spans, "communication");
    EXPECT_EQ(std::count(sent.begin(), sent.end(), "reduction"), 1) << rank;
  }
}

// The trace is in the same folder as the run's record.
TEST_F(TrainTrace, LiesBesideTheRecordOfTheRun) {
  trace_of({"--nproc-per-node", "2"});
  const json run = json::parse(read_text(scratch / "run/run.json"));
  EXPECT_EQ(run.at("state"), "complete");
  EXPECT_EQ(run.at("world_size"), 2);
  EXPECT_EQ(run.at("epochs").size(), 1U);
  EXPECT_FALSE(run.at("command").get<std::string>().empty());
  EXPECT_FALSE(run.at("versions").at("libtorch").get<std::string>().empty());
}

// The four ranks may have fewer processors. A step of 1 ms then waits for a processor, for a rank
// that waits for one, or for its message: chance decides which of these takes most of the time.
TEST_F(TrainTrace, TellsTheDoctorWhatLimitedTheRun) {
  trace_of({"--nproc-per-node", "4"});
  const ProgramResult result = run_forked(
      {LOCKSTEP_PROGRAM, "doctor", in_scratch("run"), "--json", in_scratch("advice.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("mnist: ddp, 4 ranks, "));
  const json advice = json::parse(read_text(scratch / "advice.json"));
  ASSERT_FALSE(advice.empty());
  std::set<std::string> limits;
  for (const json& each : advice) limits.insert(each.at("limit").get<std::string>());
  if (sysconf(_SC_NPROCESSORS_ONLN) < 4) {
    EXPECT_THAT(limits, ::testing::Contains(
                            ::testing::AnyOf("oversubscription", "straggler", "communication")));
  } else {
    EXPECT_THAT(limits, ::testing::Not(::testing::Contains("oversubscription")));
  }
  for (const char* kept : {"run/run.json", "run/trace.json"}) {
    expect_one_error(
        run_forked({LOCKSTEP_PROGRAM, "doctor", in_scratch("run"), "--json", in_scratch(kept)}), 2,
        "doctor: --json must not replace what a run has left", kept);
  }
  expect_one_error(run_forked({LOCKSTEP_PROGRAM, "doctor", in_scratch("none")}), 1,
                   "none does not exist: give the folder of a `lockstep train --out` run",
                   "no run");
}

TEST_F(TrainTrace, HasReplicasAndStagesOnThreads) {
  const json replicas = trace_of({"--strategy", "dp", "--devices", "2"});
  EXPECT_THAT(tracks(replicas, 0),
              IsSupersetOf({std::string("training"), std::string("replica 0 on cpu"),
                            std::string("replica 1 on cpu")}));
  const json stages = trace_of(
      {"--strategy", "pipeline", "--stages", "2", "--micro-batches", "2", "--schedule", "1f1b"});
  EXPECT_THAT(tracks(stages, 0), IsSupersetOf({std::string("worker 0"), std::string("worker 1")}));
  EXPECT_THAT(names(events(stages, "X", 0), "forward"), IsSupersetOf({"0F0", "0F1", "1F0", "1F1"}));
  EXPECT_THAT(names(events(stages, "X", 0), "backward"), IsSupersetOf({"0B1", "1B0"}));
}

TEST_F(TrainTrace, HasHybridsOfRanks) {
  const json trace = trace_of({"--strategy", "hybrid", "--nproc-per-node", "4", "--stages", "2",
                               "--micro-batches", "2", "--schedule", "1f1b"});
  EXPECT_THAT(names(events(trace, "X", 0), "forward"), IsSupersetOf({"0F0", "0F1"}));
  EXPECT_THAT(names(events(trace, "X", 0), "message"), IsSupersetOf({"0SEND_F0", "0RECV_B0"}));
  std::size_t reductions = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<std::string> all = names(events(trace, "X", rank), "communication");
    reductions += static_cast<std::size_t>(std::count(all.begin(), all.end(), "reduction"));
  }
  EXPECT_GE(reductions, 4U);
  EXPECT_FALSE(events(trace, "f", 0).empty() && events(trace, "s", 0).empty());
}

TEST_F(TrainTrace, IsRefusedWithoutAFolder) {
  expect_one_error(train({"mnist", "--trace"}), 2,
                   "train: --trace needs --out DIR, where trace.json is written", "no folder");
  expect_one_error(train({"mnist", "--trace", "--out", in_scratch("run"), "--trace-steps", "101"}),
                   2, "train: --trace-steps must be from 1 to 100, got 101", "steps");
}

}  // namespace
}  // namespace lockstep::testing_support
