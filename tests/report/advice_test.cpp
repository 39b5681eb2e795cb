#include <lockstep/report/advice/advice.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> limits_of(const RunFacts& facts) {
  std::vector<std::string> limits;
  for (const Advice& each : advise(facts)) limits.push_back(each.limit);
  return limits;
}

// A run with nothing to complain of.
RunFacts healthy() {
  RunFacts facts;
  facts.recipe = "mnist";
  facts.strategy = "ddp";
  facts.loader = "native";
  facts.device = "cpu";
  facts.backend = "shm";
  facts.ranks = facts.local_ranks = 2;
  facts.processors = 2;
  facts.batch_per_rank = 64;
  facts.step_seconds = 0.01;
  facts.data = 0.01;
  facts.compute = 0.95;
  facts.communication = 0.02;
  facts.trace = TraceFacts{.steps = 10,
                           .step_seconds = 0.01,
                           .waits = {{0, 0.0001}, {1, 0.0001}},
                           .waited_for = {{0, 0.0001}, {1, 0.0001}},
                           .reductions = 2,
                           .reduction_seconds = 0.0001,
                           .reduction_bytes = 4e6};
  return facts;
}

TEST(Advice, IsToComputeFasterWhereNothingElseLimits) {
  EXPECT_THAT(limits_of(healthy()), ElementsAre("compute"));
  EXPECT_THAT(advise(healthy())[0].figures, HasSubstr("95% of a step of 10.00 ms"));
}

TEST(Advice, NamesALoaderThatIsTooSlow) {
  RunFacts facts = healthy();
  facts.data = 0.4;
  facts.compute = 0.5;
  EXPECT_THAT(limits_of(facts), ElementsAre("loader"));
  EXPECT_THAT(advise(facts)[0].figures, HasSubstr("waits 4.00 ms of 10.00 ms for the next batch (40%)"));
  EXPECT_THAT(advise(facts)[0].option, HasSubstr("--cache"));
}

TEST(Advice, NamesCommunicationThatComputingDoesNotHide) {
  RunFacts facts = healthy();
  facts.communication = 0.3;
  facts.compute = 0.65;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
  facts.ranks = 1;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
}

// What is waiting for a late rank is no communication.
TEST(Advice, TellsAStragglerFromASlowWire) {
  RunFacts facts = healthy();
  facts.communication = 0.3;
  facts.compute = 0.65;
  facts.trace->waits = {{0, 0.0029}, {1, 0.0001}};
  facts.trace->waited_for = {{1, 0.0027}, {0, 0.0003}};
  EXPECT_THAT(limits_of(facts), ElementsAre("straggler", "compute"));
  EXPECT_THAT(advise(facts)[0].figures,
              HasSubstr("wait up to 2.90 ms of 10.00 ms for later ones (29%), 90% of that time for rank 1"));
  EXPECT_THAT(advise(facts)[0].option, HasSubstr("rank 1"));
  facts.trace->waited_for = {{1, 0.0016}, {0, 0.0014}};
  EXPECT_THAT(advise(facts)[0].option, HasSubstr("No single rank is slow"));
}

// The others wait for it, and it does not communicate at all.
TEST(Advice, NamesRank0WhereItIsTheLateOne) {
  RunFacts facts = healthy();
  facts.communication = 0;
  facts.trace->waits = {{1, 0.004}};
  facts.trace->waited_for = {{0, 0.004}};
  EXPECT_THAT(limits_of(facts), ElementsAre("straggler", "compute"));
  EXPECT_THAT(advise(facts)[0].option, HasSubstr("rank 0"));
}

TEST(Advice, NamesBucketsThatAreTooSmall) {
  RunFacts facts = healthy();
  facts.communication = 0.2;
  facts.trace->reductions = 40;
  facts.trace->reduction_bytes = 20'000;
  facts.trace->reduction_seconds = 0.00005;
  EXPECT_THAT(limits_of(facts), ElementsAre("small buckets", "communication", "compute"));
  EXPECT_THAT(advise(facts)[0].option, HasSubstr("--bucket-cap-mb"));
  facts.strategy = "hybrid";  // it has no such option
  EXPECT_THAT(advise(facts)[0].option, Not(HasSubstr("--bucket-cap-mb")));
  facts.trace->reduction_bytes = 2e6;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
}

TEST(Advice, NamesMoreThreadsThanProcessors) {
  RunFacts facts = healthy();
  facts.ranks = 4;  // on two hosts
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.local_ranks = 4;
  EXPECT_THAT(limits_of(facts), ElementsAre("oversubscription", "compute"));
  EXPECT_DOUBLE_EQ(advise(facts)[0].share, 0.5);
  facts.processors = 4;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
}

TEST(Advice, NamesAGpuThatWaitsForItsHost) {
  RunFacts facts = healthy();
  facts.device = "cuda";
  facts.gpu_utilisation = 0.3;
  EXPECT_THAT(limits_of(facts), ElementsAre("launch overhead", "compute"));
  facts.gpu_utilisation = 0.9;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  // The loader explains it.
  facts.gpu_utilisation = 0.4;
  facts.data = 0.58;
  facts.compute = 0.4;
  EXPECT_THAT(limits_of(facts), ElementsAre("loader"));
}

TEST(Advice, PutsTheLargestLimitFirst) {
  RunFacts facts = healthy();
  facts.data = 0.1;
  facts.communication = 0.3;
  facts.compute = 0.55;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "loader", "compute"));
  EXPECT_THAT(advice_text(facts, advise(facts)),
              HasSubstr("mnist: ddp, 2 ranks, 10.00 ms a step of 64 images a rank\ncommunication, 29%: "));
}

class RunFactsTest : public ::testing::Test {
 protected:
  TemporaryDirectory folder_;
};

constexpr const char* kRecord = R"({"recipe": "mnist", "strategy": "ddp", "loader": "native",
  "device": "cpu", "backend": "shm", "world_size": 2, "threads_per_rank": 1, "usable_processors": 2,
  "global_batch": 128, "steps_per_epoch": 100, "epochs": [
  {"steps": 100, "seconds": 90, "phases": {"data": 80, "forward": 1, "backward": 1, "communication": 1, "optimizer": 1}},
  {"steps": 100, "seconds": 2, "gpu": null,
   "phases": {"data": 0.5, "forward": 0.5, "backward": 0.6, "communication": 0.2, "optimizer": 0.1}}]})";

TEST_F(RunFactsTest, AreThoseOfTheEpochsBehindTheFirst) {
  folder_.write("run.json", kRecord);
  const RunFacts facts = read_run_facts(folder_.path());
  EXPECT_EQ(facts.ranks, 2);
  EXPECT_EQ(facts.batch_per_rank, 64);
  EXPECT_DOUBLE_EQ(facts.step_seconds, 0.02);
  EXPECT_DOUBLE_EQ(facts.data, 0.25);
  EXPECT_DOUBLE_EQ(facts.compute, 0.6);
  EXPECT_DOUBLE_EQ(facts.communication, 0.1);
  EXPECT_FALSE(facts.trace);
  EXPECT_FALSE(facts.gpu_utilisation);
}

// Two steps of 2 ms on average. Rank 0 waits 400 us for a bucket, 100 of them while backward goes on, and
// 200 us in a call of the second step; behind the steps it waits for an evaluation.
TEST_F(RunFactsTest, HaveWhatTheTraceTells) {
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", R"({"traceEvents": [
    {"ph": "M", "name": "thread_name"},
    {"ph": "X", "cat": "step", "name": "step 1", "pid": 0, "ts": 0, "dur": 1000, "args": {}},
    {"ph": "X", "cat": "step", "name": "step 2", "pid": 0, "ts": 1000, "dur": 3000, "args": {}},
    {"ph": "X", "cat": "step", "name": "step 1", "pid": 1, "ts": 0, "dur": 9000, "args": {}},
    {"ph": "X", "cat": "communication", "name": "exposed communication", "pid": 0, "ts": 600, "dur": 400,
     "args": {}},
    {"ph": "X", "cat": "arrival", "name": "reduction: waits for rank 1", "pid": 0, "ts": 500, "dur": 400,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "arrival", "name": "barrier: waits for rank 1", "pid": 0, "ts": 2000, "dur": 200,
     "args": {}},
    {"ph": "X", "cat": "arrival", "name": "all_reduce: waits for rank 1", "pid": 0, "ts": 4000, "dur": 800,
     "args": {}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 900, "dur": 100,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 950, "dur": 100,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 1, "ts": 900, "dur": 150,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 1, "ts": 910, "dur": 20,
     "args": {"bytes": "5000"}}]})");
  const TraceFacts trace = read_run_facts(folder_.path()).trace.value();
  EXPECT_EQ(trace.steps, 2);
  EXPECT_DOUBLE_EQ(trace.step_seconds, 0.002);
  EXPECT_DOUBLE_EQ(trace.waits.at(0), (0.0003 + 0.0002) / 2);
  EXPECT_DOUBLE_EQ(trace.longest_wait(), trace.waits.at(0));
  EXPECT_DOUBLE_EQ(trace.waited_for.at(1), trace.waits.at(0));
  EXPECT_FALSE(trace.waited_for.contains(0));
  EXPECT_DOUBLE_EQ(trace.reductions, 1);
  EXPECT_DOUBLE_EQ(trace.reduction_seconds, (0.00015 + 0.00015) / 4) << "what overlaps counts once";
  EXPECT_DOUBLE_EQ(trace.reduction_bytes, 2000);
}

TEST_F(RunFactsTest, NameTheFileThatIsNotOurs) {
  const auto refusal = [&] {
    return testing_support::message_of<DataError>([&] { read_run_facts(folder_.path()); });
  };
  EXPECT_THAT(refusal(), HasSubstr("has no run.json: give the folder that"));
  folder_.write("run.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not JSON: line 1, column 2"));
  folder_.write("run.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not what Lockstep writes"));
  folder_.write("run.json", R"({"epochs": []})");
  EXPECT_THAT(refusal(), HasSubstr("run.json: the run has no whole epoch yet"));
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("trace.json is not what Lockstep writes"));
}

}  // namespace
}  // namespace lockstep::testing_support
