#include <lockstep/report/advice/advice.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> limits_of(const report::RunFacts& facts) {
  std::vector<std::string> limits;
  for (const report::Advice& each : report::advise(facts)) limits.push_back(each.limit);
  return limits;
}

// The facts of a run without problems.
report::RunFacts healthy() {
  report::RunFacts facts;
  facts.recipe = "mnist";
  facts.strategy = "ddp";
  facts.loader = "native";
  facts.device = "cpu";
  facts.backend = "shm";
  facts.ranks = facts.local_ranks = 2;
  facts.processors = 2;
  facts.batch_per_rank = 64;
  facts.epochs = "epochs 2 to 10";
  facts.step_seconds = 0.01;
  facts.data = 0.01;
  facts.compute = 0.95;
  facts.communication = 0.02;
  facts.trace = report::TraceFacts{.steps = 10,
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
  EXPECT_THAT(report::advise(healthy())[0].figures, HasSubstr("95% of a step of 10.00 ms"));
}

TEST(Advice, NamesALoaderThatIsTooSlow) {
  report::RunFacts facts = healthy();
  facts.data = 0.4;
  facts.compute = 0.5;
  EXPECT_THAT(limits_of(facts), ElementsAre("loader"));
  EXPECT_THAT(report::advise(facts)[0].figures,
              HasSubstr("waits 4.00 ms of 10.00 ms for the next batch (40%)"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("--cache"));
}

TEST(Advice, NamesCommunicationThatComputingDoesNotHide) {
  report::RunFacts facts = healthy();
  facts.communication = 0.3;
  facts.compute = 0.65;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
  facts.ranks = 1;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
}

// Waiting for a late rank is not communication.
TEST(Advice, TellsAStragglerFromASlowWire) {
  report::RunFacts facts = healthy();
  facts.communication = 0.3;
  facts.compute = 0.65;
  facts.trace->waits = {{0, 0.0029}, {1, 0.0001}};
  facts.trace->waited_for = {{1, 0.0027}, {0, 0.0003}};
  EXPECT_THAT(limits_of(facts), ElementsAre("straggler", "compute"));
  EXPECT_THAT(
      report::advise(facts)[0].figures,
      HasSubstr(
          "wait up to 2.90 ms of 10.00 ms for later ones (29%), 90% of that time for rank 1"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("rank 1"));
  facts.trace->waited_for = {{1, 0.0016}, {0, 0.0014}};
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("No single rank is slow"));
}

// The others wait for rank 0, which itself spends no time on communication.
TEST(Advice, NamesRank0WhereItIsTheLateOne) {
  report::RunFacts facts = healthy();
  facts.communication = 0;
  facts.trace->waits = {{1, 0.004}};
  facts.trace->waited_for = {{0, 0.004}};
  EXPECT_THAT(limits_of(facts), ElementsAre("straggler", "compute"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("rank 0"));
}

TEST(Advice, NamesBucketsThatAreTooSmall) {
  report::RunFacts facts = healthy();
  facts.communication = 0.2;
  facts.trace->reductions = 40;
  facts.trace->reduction_bytes = 20'000;
  facts.trace->reduction_seconds = 0.00005;
  EXPECT_THAT(limits_of(facts), ElementsAre("small buckets", "compute"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("--bucket-cap-mb"));
  // Rank 0 waits for rank 1 in 1% of a step. Of the rest, three buckets in place of 40 would save
  // 37/40.
  EXPECT_DOUBLE_EQ(report::advise(facts)[0].share, 0.2 * 37 / 40);
  EXPECT_THAT(report::advise(facts)[0].figures, HasSubstr("would save up to 1.85 ms of 10.00 ms."));
  facts.strategy = "hybrid";  // a strategy without the option
  EXPECT_THAT(report::advise(facts)[0].option, Not(HasSubstr("--bucket-cap-mb")));
  facts.trace->reduction_bytes = 2e6;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
}

TEST(Advice, NamesMoreThreadsThanProcessors) {
  report::RunFacts facts = healthy();
  facts.ranks = 4;  // on two hosts
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.local_ranks = 4;
  EXPECT_THAT(limits_of(facts), ElementsAre("oversubscription", "compute"));
  EXPECT_DOUBLE_EQ(report::advise(facts)[0].share, 0.5 * 0.95) << "half of the computing";
  facts.processors = 4;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
}

TEST(Advice, NamesAGpuThatWaitsForItsHost) {
  report::RunFacts facts = healthy();
  facts.device = "cuda";
  facts.gpu_utilisation = 0.3;
  EXPECT_THAT(limits_of(facts), ElementsAre("launch overhead", "compute"));
  facts.gpu_utilisation = 0.9;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  // The slow loader explains the low utilisation.
  facts.gpu_utilisation = 0.4;
  facts.data = 0.58;
  facts.compute = 0.4;
  EXPECT_THAT(limits_of(facts), ElementsAre("loader"));
}

// A GPU idles while its rank waits for messages or for the first batch, too.
TEST(Advice, CountsNoWaitAsLaunchOverhead) {
  for (double report::RunFacts::* wait : {&report::RunFacts::communication, &report::RunFacts::data,
                                          &report::RunFacts::first_batch}) {
    report::RunFacts facts = healthy();
    facts.device = "cuda";
    facts.data = facts.communication = 0;
    facts.*wait = 0.3;
    facts.compute = 0.65;
    facts.gpu_utilisation = 0.5;
    double launch = 0;
    for (const report::Advice& each : report::advise(facts)) {
      if (each.limit == "launch overhead") launch = each.share;
    }
    EXPECT_NEAR(launch, 1 - 0.5 - 0.3, 1e-9);
    facts.*wait = 0.48;
    facts.compute = 0.5;
    EXPECT_THAT(limits_of(facts), Not(::testing::Contains("launch overhead")));
  }
}

TEST(Advice, SaysWhoTakesTheImagesOfAStep) {
  report::RunFacts facts = healthy();
  const auto text = [&] { return report::advice_text(facts, report::advise(facts)); };
  EXPECT_THAT(text(), HasSubstr("10.00 ms a step of 64 images a rank\n"));
  facts.strategy = "hybrid";
  facts.pipelines = 2;
  EXPECT_THAT(text(), HasSubstr("10.00 ms a step of 64 images a pipeline\n"));
  facts.strategy = "pipeline";
  facts.pipelines = 1;
  EXPECT_THAT(text(), HasSubstr("10.00 ms a step of 64 images\n"));
}

TEST(Advice, PutsTheLargestLimitFirst) {
  report::RunFacts facts = healthy();
  facts.data = 0.1;
  facts.communication = 0.3;
  facts.compute = 0.55;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "loader", "compute"));
  EXPECT_THAT(
      report::advice_text(facts, report::advise(facts)),
      HasSubstr("mnist: ddp, 2 ranks, 10.00 ms a step of 64 images a rank\n"
                "Percentages are shares of the mean step of rank 0 in epochs 2 to 10 (10.00 ms). "
                "Values from the trace (10 steps of 10.00 ms) are scaled to 10.00 ms.\n"
                "communication, 29%: "));
}

// The traced steps take three times as long as those of the epochs.
TEST(Advice, HasSharesOfOneStep) {
  report::RunFacts facts = healthy();
  facts.data = 0.25;
  facts.communication = 0.3;
  facts.compute = 0.45;
  facts.trace->step_seconds = 0.03;
  facts.trace->waits = {{0, 0.006}, {1, 0}};
  facts.trace->waited_for = {{1, 0.006}};
  EXPECT_THAT(limits_of(facts), ElementsAre("loader", "straggler", "communication"));
  const std::vector<report::Advice> advice = report::advise(facts);
  EXPECT_DOUBLE_EQ(advice[1].share, 0.2);
  EXPECT_THAT(advice[1].figures, HasSubstr("wait up to 2.00 ms of 10.00 ms for later ones (20%)"));
  EXPECT_NEAR(advice[2].share, 0.1, 1e-9);
}

double sum_of_shares(const report::RunFacts& facts) {
  double sum = 0;
  for (const report::Advice& each : report::advise(facts)) sum += each.share;
  return sum;
}

// All limits at once, on each device.
TEST(Advice, ClaimsNoTimeTwice) {
  for (const bool rank_0_is_late : {false, true}) {
    report::RunFacts facts = healthy();
    facts.data = facts.first_batch = facts.least_first_batch = 0.1;
    facts.communication = 0.35;
    facts.stage_waits = 0.1;
    facts.compute = 0.45;
    facts.local_ranks = facts.ranks = 8;
    facts.processor_wait = 0.9;
    facts.other_programs = 0.5;
    facts.trace->waits = {{rank_0_is_late ? 1 : 0, 0.009}};
    facts.trace->waited_for = {{rank_0_is_late ? 0 : 1, 0.009}};
    facts.trace->stage_waits = {{0, 0.008}};
    facts.trace->reductions = 100;
    facts.trace->reduction_bytes = 1000;
    facts.trace->reduction_seconds = 0.001;
    EXPECT_LE(sum_of_shares(facts), 1 + 1e-9);
    EXPECT_GE(sum_of_shares(facts), 0.9);
    facts.local_ranks = 1;  // no oversubscription
    EXPECT_LE(sum_of_shares(facts), 1 + 1e-9);
    facts.device = "cuda";
    facts.gpu_utilisation = 0.05;
    EXPECT_LE(sum_of_shares(facts), 1 + 1e-9);
  }
}

TEST(Advice, NamesTheFirstBatchWhereEachEpochWaitsForIt) {
  report::RunFacts facts = healthy();
  facts.first_batch = 0.3;
  facts.compute = 0.65;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute")) << "some epochs do not";
  facts.least_first_batch = 0.2;
  EXPECT_THAT(limits_of(facts), ElementsAre("first batch", "compute"));
  EXPECT_THAT(report::advise(facts)[0].figures, HasSubstr("30% of the time"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("--workers"));
}

TEST(Advice, NamesOtherProgramsThatTakeProcessors) {
  report::RunFacts facts = healthy();
  facts.processor_wait = 0.3;
  facts.other_programs = 0.02;  // the loader's threads used them
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.other_programs = 0.4;
  EXPECT_THAT(limits_of(facts), ElementsAre("other programs", "compute"));
  EXPECT_DOUBLE_EQ(report::advise(facts)[0].share, 0.3);
  EXPECT_THAT(report::advise(facts)[0].figures,
              HasSubstr("used 40% of the processors. In each step, a thread that was ready to "
                        "compute waited 3.00 ms of 10.00 ms"));
  EXPECT_DOUBLE_EQ(report::advise(facts)[1].share, 0.65);
  EXPECT_THAT(report::advise(facts)[1].figures, HasSubstr("; 65% without what other limits add."));
  facts.processor_wait = 0.01;  // the other programs use idle processors
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.processor_wait.reset();  // the kernel does not report it
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.processor_wait = 0.3;
  facts.processors = 1;
  EXPECT_THAT(limits_of(facts), ElementsAre("oversubscription", "compute"));
}

TEST(Advice, TellsAPipelinesBubbleFromItsMessages) {
  report::RunFacts facts = healthy();
  facts.strategy = "pipeline";
  facts.communication = 0.4;
  facts.stage_waits = 0.38;
  facts.compute = 0.55;
  facts.trace.reset();
  EXPECT_THAT(limits_of(facts), ElementsAre("pipeline bubble", "compute"));
  EXPECT_THAT(
      report::advise(facts)[0].figures,
      HasSubstr("waits 3.80 ms of 10.00 ms for another stage (38%), the way of the messages "
                "included."));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("--micro-batches"));
  // The trace shows when the messages were sent.
  facts.trace = report::TraceFacts{
      .steps = 10, .step_seconds = 0.02, .stage_waits = {{0, 0.005}, {1, 0.001}}};
  EXPECT_THAT(limits_of(facts), ElementsAre("pipeline bubble", "communication", "compute"));
  EXPECT_DOUBLE_EQ(report::advise(facts)[0].share, 0.25);
  EXPECT_DOUBLE_EQ(report::advise(facts)[1].share, 0.4 - 0.25);
  // The bubble is not longer than the waits that the epochs measured.
  facts.trace->stage_waits = {{0, 0.009}};
  EXPECT_DOUBLE_EQ(report::advise(facts)[0].share, 0.38);
  EXPECT_THAT(limits_of(facts), ElementsAre("pipeline bubble", "compute"));
  facts.trace->stage_waits = {{0, 0.005}, {1, 0.001}};
  EXPECT_THAT(report::advise(facts)[1].option, HasSubstr("activations"));
}

TEST(Advice, NamesWhatTakesFiveHundredthsOfAStep) {
  report::RunFacts facts = healthy();
  facts.data = 0.05;
  EXPECT_THAT(limits_of(facts), ElementsAre("loader", "compute"));
  facts.data = 0.0499;
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.device = "cuda";
  facts.data = facts.communication = 0;
  facts.gpu_utilisation = 0.6;  // a GPU that computes this much is not idle
  EXPECT_THAT(limits_of(facts), ElementsAre("compute"));
  facts.gpu_utilisation = 0.59;
  EXPECT_THAT(limits_of(facts), ElementsAre("launch overhead", "compute"));
}

TEST(Advice, FollowsTheLoaderAndTheDevice) {
  report::RunFacts facts = healthy();
  facts.loader = "dali";
  facts.data = 0.4;
  facts.compute = 0.55;
  EXPECT_EQ(report::advise(facts)[0].option,
            "Try more loader threads (--workers), or --loader native.");
  EXPECT_THAT(report::advise(facts)[1].option, HasSubstr("More processors or ranks"));
  facts.device = "cuda";
  EXPECT_EQ(report::advise(facts)[1].option, "More GPUs make it faster.");
}

TEST(Advice, AsksForATraceOfSeveralRanks) {
  report::RunFacts facts = healthy();
  const auto text = [&] { return report::advice_text(facts, {}); };
  EXPECT_THAT(text(), Not(HasSubstr("no trace.json")));
  facts.trace.reset();
  EXPECT_THAT(text(), HasSubstr("there is no trace.json, which would tell late ranks from slow"));
  facts.ranks = 1;
  EXPECT_THAT(text(), Not(HasSubstr("no trace.json")));
}

// The stages of one process exchange no messages between ranks.
TEST(Advice, FollowsTheRanksOfAPipeline) {
  report::RunFacts facts = healthy();
  facts.strategy = "pipeline";
  facts.ranks = 1;
  facts.communication = facts.stage_waits = 0.4;
  facts.compute = 0.5;
  facts.trace.reset();
  EXPECT_THAT(limits_of(facts), ElementsAre("pipeline bubble"));
  EXPECT_THAT(report::advise(facts)[0].figures, ::testing::EndsWith("for another stage (40%)."));
  facts.strategy = "hybrid";
  facts.ranks = 4;
  facts.stage_waits = 0;
  EXPECT_THAT(limits_of(facts), ElementsAre("communication"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("fewer activations"));
  facts.trace = report::TraceFacts{.steps = 10,
                                   .step_seconds = 0.01,
                                   .reductions = 40,
                                   .reduction_seconds = 0.0002,
                                   .reduction_bytes = 1000};
  EXPECT_THAT(limits_of(facts), ElementsAre("small buckets"));
  EXPECT_THAT(report::advise(facts)[0].option, HasSubstr("fewer pipelines"));
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
  const report::RunFacts facts = report::read_run_facts(folder_.path());
  EXPECT_EQ(facts.ranks, 2);
  EXPECT_EQ(facts.batch_per_rank, 64);
  EXPECT_DOUBLE_EQ(facts.step_seconds, 0.02);
  EXPECT_DOUBLE_EQ(facts.data, 0.25);
  EXPECT_DOUBLE_EQ(facts.compute, 0.6);
  EXPECT_DOUBLE_EQ(facts.communication, 0.1);
  EXPECT_EQ(facts.epochs, "epoch 2");
  EXPECT_FALSE(facts.trace);
  EXPECT_FALSE(facts.gpu_utilisation);
  EXPECT_FALSE(facts.processor_wait);
  EXPECT_FALSE(facts.other_programs);
}

// An epoch of 20 steps whose first batch took 1 s of 3 s.
constexpr const char* kShortEpoch =
    R"({"epoch": 1, "steps": 20, "seconds": 3, "first_batch_seconds": 1,
  "phases": {"data": 1.02, "forward": 0.8, "backward": 1, "communication": 0.1, "optimizer": 0.08}})";

TEST_F(RunFactsTest, LeaveTheFirstBatchOfAShortRunOut) {
  nlohmann::json run = nlohmann::json::parse(kRecord);
  run["epochs"] = {nlohmann::json::parse(kShortEpoch)};
  folder_.write("run.json", run.dump());
  const report::RunFacts facts = report::read_run_facts(folder_.path());
  EXPECT_EQ(facts.epochs, "epoch 1 after its first batch");
  EXPECT_DOUBLE_EQ(facts.step_seconds, 0.1);
  EXPECT_NEAR(facts.data, 0.01, 1e-9);
  EXPECT_EQ(facts.first_batch, 0);
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
  run["epochs"][0]["first_batch_seconds"] = 0.1;  // the other batches took long
  folder_.write("run.json", run.dump());
  EXPECT_THAT(limits_of(report::read_run_facts(folder_.path())), ElementsAre("loader", "compute"));
}

// Its GPU was idle for 1 s of 3 s, while it waited for the first batch.
TEST_F(RunFactsTest, LeaveTheFirstBatchOfAShortRunOutOfAllShares) {
  nlohmann::json run = nlohmann::json::parse(kRecord);
  run["device"] = "cuda";
  run["epochs"] = {nlohmann::json::parse(kShortEpoch)};
  run["epochs"][0]["gpu"] = {{"utilisation", 0.6}};
  run["epochs"][0]["processor_wait_seconds"] = 0.5;
  folder_.write("run.json", run.dump());
  report::RunFacts facts = report::read_run_facts(folder_.path());
  EXPECT_DOUBLE_EQ(facts.gpu_utilisation.value(), 0.9);
  EXPECT_DOUBLE_EQ(facts.processor_wait.value(), 0.25);
  EXPECT_THAT(limits_of(facts), ElementsAre("communication", "compute"));
  run["epochs"][0]["gpu"]["utilisation"] = 0.9;  // measured at other times than the wait
  folder_.write("run.json", run.dump());
  EXPECT_DOUBLE_EQ(report::read_run_facts(folder_.path()).gpu_utilisation.value(), 1);
  run["epochs"].push_back(run["epochs"][0]);
  run["epochs"].push_back(run["epochs"][0]);
  run["epochs"][1]["gpu"]["utilisation"] = 0.3;
  run["epochs"][1]["seconds"] = 6;
  folder_.write("run.json", run.dump());
  facts = report::read_run_facts(folder_.path());
  EXPECT_DOUBLE_EQ(facts.gpu_utilisation.value(), (6 * 0.3 + 3 * 0.9) / 9) << "by their lengths";
}

TEST_F(RunFactsTest, CountTheImagesOfAStep) {
  const auto facts_with = [&](const std::string& strategy, const nlohmann::json& more) {
    nlohmann::json run = nlohmann::json::parse(kRecord);
    run["strategy"] = strategy;
    run["world_size"] = 8;
    run.update(more);
    folder_.write("run.json", run.dump());
    return report::read_run_facts(folder_.path());
  };
  const nlohmann::json none = nlohmann::json::object();
  EXPECT_EQ(facts_with("ddp", none).batch_per_rank, 16);
  EXPECT_EQ(facts_with("ddp", none).pipelines, 0);
  EXPECT_EQ(facts_with("ddp", {{"accumulate_grad_batches", 3}}).batch_per_rank, 48);
  EXPECT_EQ(facts_with("pipeline", {{"workers", 8}}).batch_per_rank, 128);
  EXPECT_EQ(facts_with("pipeline", {{"workers", 8}}).pipelines, 1);
  EXPECT_EQ(facts_with("pipeline", {{"workers", 2}, {"world_size", 1}}).batch_per_rank, 128);
  EXPECT_EQ(facts_with("hybrid", {{"workers", 4}}).batch_per_rank, 64);
  EXPECT_EQ(facts_with("hybrid", {{"workers", 4}}).pipelines, 2);
  EXPECT_EQ(facts_with("hybrid", {{"workers", 8}}).batch_per_rank, 128);
}

TEST_F(RunFactsTest, TellTheFirstBatchOfEachEpochApart) {
  nlohmann::json run = nlohmann::json::parse(kRecord);
  run["epochs"].clear();
  for (int epoch = 1; epoch <= 3; ++epoch) {
    run["epochs"].push_back(nlohmann::json::parse(kShortEpoch));
    run["epochs"].back()["epoch"] = epoch;
  }
  folder_.write("run.json", run.dump());
  report::RunFacts facts = report::read_run_facts(folder_.path());
  EXPECT_EQ(facts.epochs, "epochs 2 to 3");
  EXPECT_DOUBLE_EQ(facts.step_seconds, 0.15);
  EXPECT_DOUBLE_EQ(facts.first_batch, 1.0 / 3);
  EXPECT_THAT(limits_of(facts), ElementsAre("first batch", "compute"));
  run["epochs"][1]["first_batch_seconds"] = 0.0;
  run["epochs"][1]["phases"]["data"] = 0.02;
  folder_.write("run.json", run.dump());
  EXPECT_THAT(limits_of(report::read_run_facts(folder_.path())), ElementsAre("compute"));
}

// Two ranks on four processors. Each rank keeps one and a half processors busy.
TEST_F(RunFactsTest, KnowWhatOtherProgramsUsed) {
  nlohmann::json run = nlohmann::json::parse(kRecord);
  run["usable_processors"] = 4;
  nlohmann::json& epoch = run["epochs"][1];  // an epoch of 2 s
  epoch["processor_seconds"] = 3;
  epoch["processor_wait_seconds"] = 0.5;
  epoch["busy_processors"] = 0.875;
  folder_.write("run.json", run.dump());
  report::RunFacts facts = report::read_run_facts(folder_.path());
  EXPECT_DOUBLE_EQ(facts.processor_wait.value(), 0.25);
  EXPECT_DOUBLE_EQ(facts.other_programs.value(), 0.125);
  epoch["processor_wait_seconds"] = epoch["busy_processors"] = nullptr;
  folder_.write("run.json", run.dump());
  facts = report::read_run_facts(folder_.path());
  EXPECT_FALSE(facts.processor_wait);
  EXPECT_FALSE(facts.other_programs);
}

TEST_F(RunFactsTest, KnowAPipelinesWaits) {
  nlohmann::json run = nlohmann::json::parse(kRecord);
  run["epochs"][1]["phases"]["stage_waits"] = 0.1;
  folder_.write("run.json", run.dump());
  EXPECT_DOUBLE_EQ(report::read_run_facts(folder_.path()).stage_waits, 0.05);
}

// Two steps of 2 ms on average, each of which first waits 0.2 ms for a batch. Rank 0 waits 400 us
// for a bucket, 100 us of them during backward, and 200 us in a call of the second step. After the
// steps it waits for an evaluation.
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
    {"ph": "X", "cat": "phase", "name": "wait for first batch", "pid": 0, "ts": -500, "dur": 500, "args": {}},
    {"ph": "X", "cat": "phase", "name": "wait for data", "pid": 0, "ts": 900, "dur": 100, "args": {}},
    {"ph": "X", "cat": "phase", "name": "wait for data", "pid": 0, "ts": 4000, "dur": 400, "args": {}},
    {"ph": "X", "cat": "phase", "name": "wait for data", "pid": 1, "ts": 9000, "dur": 900, "args": {}},
    {"ph": "X", "cat": "arrival", "name": "recv: waits for rank 1", "pid": 0, "ts": 3000, "dur": 300,
     "args": {}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 900, "dur": 100,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 950, "dur": 100,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 1, "ts": 900, "dur": 150,
     "args": {"bytes": "1000"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 1, "ts": 910, "dur": 20,
     "args": {"bytes": "5000"}}]})");
  const report::TraceFacts trace = report::read_run_facts(folder_.path()).trace.value();
  EXPECT_EQ(trace.steps, 2);
  EXPECT_DOUBLE_EQ(trace.step_seconds, 0.0022) << "with the waits for batches before and behind";
  EXPECT_DOUBLE_EQ(trace.waits.at(0), (0.0003 + 0.0002) / 2);
  EXPECT_DOUBLE_EQ(trace.longest_wait(), trace.waits.at(0));
  EXPECT_DOUBLE_EQ(trace.waited_for.at(1), trace.waits.at(0));
  EXPECT_FALSE(trace.waited_for.contains(0));
  EXPECT_DOUBLE_EQ(trace.stage_waits.at(0), 0.00015);
  EXPECT_DOUBLE_EQ(trace.reductions, 1);
  EXPECT_DOUBLE_EQ(trace.reduction_seconds, (0.00015 + 0.00015) / 4) << "what overlaps counts once";
  EXPECT_DOUBLE_EQ(trace.reduction_bytes, 2000);
}

// A reduction of 100 us has another within it, and one of 90 us begins before its end.
TEST_F(RunFactsTest, CountTheTimeOfReductionsWithinOthersOnce) {
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", R"({"traceEvents": [
    {"ph": "X", "cat": "step", "name": "step 1", "pid": 0, "ts": 0, "dur": 1000, "args": {}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 100, "dur": 100,
     "args": {"bytes": "8"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 110, "dur": 10,
     "args": {"bytes": "8"}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 130, "dur": 90,
     "args": {"bytes": "8"}}]})");
  const report::TraceFacts trace = report::read_run_facts(folder_.path()).trace.value();
  EXPECT_DOUBLE_EQ(trace.reductions, 1.5) << "three on two ranks";
  EXPECT_DOUBLE_EQ(trace.reduction_seconds, 0.00012 / 3);
}

TEST_F(RunFactsTest, HaveNoTraceWithoutSteps) {
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", R"({"traceEvents": []})");
  EXPECT_FALSE(report::read_run_facts(folder_.path()).trace);
}

TEST_F(RunFactsTest, RefuseEpochsWithoutTimeAndBytesThatAreNoNumber) {
  const auto refusal = [&] {
    return testing_support::message_of<DataError>([&] { report::read_run_facts(folder_.path()); });
  };
  for (const char* member : {"seconds", "steps"}) {
    nlohmann::json run = nlohmann::json::parse(kRecord);
    run["epochs"][1][member] = 0;
    folder_.write("run.json", run.dump());
    EXPECT_THAT(refusal(), HasSubstr("run.json: the run has no whole epoch")) << member;
  }
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", R"({"traceEvents": [
    {"ph": "X", "cat": "step", "name": "step 1", "pid": 0, "ts": 0, "dur": 1000, "args": {}},
    {"ph": "X", "cat": "communication", "name": "reduction", "pid": 0, "ts": 100, "dur": 100,
     "args": {"bytes": "many"}}]})");
  EXPECT_THAT(refusal(), HasSubstr("trace.json is not what Lockstep writes"));
}

TEST_F(RunFactsTest, NameTheFileThatIsNotOurs) {
  const auto refusal = [&] {
    return testing_support::message_of<DataError>([&] { report::read_run_facts(folder_.path()); });
  };
  EXPECT_THAT(refusal(), HasSubstr("has no run.json: give the folder of a `lockstep"));
  folder_.write("run.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not JSON: line 1, column 2"));
  folder_.write("run.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("run.json is not what Lockstep writes"));
  folder_.write("run.json", R"({"epochs": []})");
  EXPECT_THAT(refusal(), HasSubstr("run.json: the run has no whole epoch"));
  folder_.write("run.json", kRecord);
  folder_.write("trace.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("trace.json is not what Lockstep writes"));
}

}  // namespace
}  // namespace lockstep::testing_support
