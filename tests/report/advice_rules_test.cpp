// Where each rule of the advice begins, and what it says.
#include <lockstep/report/advice/advice.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/report/sample_record.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

class AdviceRules : public ::testing::Test {
 protected:
  AdviceRules() {
    facts_.recipe = "mnist";
    facts_.strategy = "ddp";
    facts_.loader = "native";
    facts_.device = "cpu";
    facts_.backend = "gloo";
    facts_.ranks = facts_.local_ranks = 2;
    facts_.processors = 8;
    facts_.batch_per_rank = 64;
    facts_.epochs = "epochs 2 to 10";
    facts_.step_seconds = 1;
    facts_.compute = 0.5;
  }

  // The limits that the advice names, in order.
  std::string limits() const {
    std::string text;
    for (const report::Advice& each : report::advise(facts_)) {
      text += (text.empty() ? "" : ", ") + each.limit;
    }
    return text;
  }
  report::Advice first() const { return report::advise(facts_).at(0); }

  report::RunFacts facts_;
};

TEST_F(AdviceRules, AddComputingWhereItTakesMoreThanHalf) {
  EXPECT_EQ(limits(), "compute") << "there is nothing else";
  facts_.data = 0.25;
  EXPECT_EQ(limits(), "loader");
  facts_.compute = 0.51;
  EXPECT_EQ(limits(), "loader, compute");
}

TEST_F(AdviceRules, SayHowMuchOfComputingIsLeft) {
  facts_.compute = 0.75;
  EXPECT_EQ(first().figures, "Forward, backward and optimizer take 75% of a step of 1000.00 ms.");
  facts_.other_programs = 0.5;
  facts_.processor_wait = 0.0625;
  EXPECT_EQ(limits(), "other programs, compute");
  EXPECT_EQ(report::advise(facts_)[1].figures,
            "Forward, backward and optimizer take 75% of a step of 1000.00 ms; 69% without what "
            "other limits add.");
  facts_.processor_wait = 0.03125;  // too little to be named
  EXPECT_EQ(limits(), "compute");
  EXPECT_EQ(first().figures, "Forward, backward and optimizer take 75% of a step of 1000.00 ms.");
}

TEST_F(AdviceRules, CountReductionsBeyondThree) {
  facts_.communication = 0.5;
  facts_.trace = report::TraceFacts{.steps = 1,
                                    .step_seconds = 2,
                                    .reductions = 4,
                                    .reduction_seconds = 0.25,
                                    .reduction_bytes = 1048575};
  // Half of the trace's step is spent on four reductions; three would save a quarter of it.
  EXPECT_EQ(limits(), "communication, small buckets");
  EXPECT_DOUBLE_EQ(report::advise(facts_)[0].share, 0.375);
  EXPECT_DOUBLE_EQ(report::advise(facts_)[1].share, 0.125);
  EXPECT_EQ(report::advise(facts_)[1].figures,
            "A step has 4 reductions of 1.0 MB, 250.00 ms each in the trace; fewer and larger ones "
            "would save up to 125.00 ms of 1000.00 ms.");
  facts_.trace->reduction_bytes = 1048576;
  EXPECT_EQ(limits(), "communication") << "buckets of a mebibyte are not small";
  facts_.trace->reduction_bytes = 4;
  facts_.trace->reductions = 3;
  EXPECT_EQ(limits(), "communication");
  facts_.trace->reductions = 4;
  facts_.trace->step_seconds = 0;
  EXPECT_EQ(limits(), "communication") << "shares of nothing";
}

TEST_F(AdviceRules, BlameTheRankThatMostWaitsAreFor) {
  facts_.communication = 0.5;
  facts_.trace = report::TraceFacts{
      .steps = 1, .step_seconds = 1, .waits = {{0, 0.5}}, .waited_for = {{1, 0.5}, {2, 0.25}}};
  EXPECT_EQ(limits(), "straggler");
  EXPECT_EQ(first().figures,
            "Ranks wait up to 500.00 ms of 1000.00 ms for later ones (50%), 67% of that time for "
            "rank 1.");
  EXPECT_THAT(first().option, HasSubstr("the GPU of rank 1, and at")) << "two thirds";
  facts_.trace->waited_for = {{1, 0.25}, {2, 0.5}};
  EXPECT_THAT(first().option, HasSubstr("the GPU of rank 2, and at"));
  facts_.trace->waited_for = {{1, 0.5}, {2, 0.26}};
  EXPECT_THAT(first().option, HasSubstr("No single rank is slow"));
  facts_.trace->waited_for = {{1, 0}, {2, 0}};
  EXPECT_EQ(limits(), "compute") << "nobody was waited for";
}

TEST_F(AdviceRules, CountTheThreadsOfAllRanksOfTheHost) {
  facts_.threads_per_rank = 5;
  EXPECT_EQ(limits(), "oversubscription");
  EXPECT_DOUBLE_EQ(first().share, 0.5 * (1 - 0.8)) << "eight processors for ten threads";
  EXPECT_EQ(first().figures,
            "2 ranks of a host, of 5 threads each, share 8 processors: a thread that is ready to "
            "compute waits 100.00 ms of 1000.00 ms for a processor.");
  facts_.threads_per_rank = 4;
  EXPECT_EQ(limits(), "compute");
  facts_.threads_per_rank = 5;
  facts_.processors = 0;
  EXPECT_EQ(limits(), "compute") << "their number is not known";
  facts_.processors = 8;
  facts_.device = "cuda";
  EXPECT_EQ(limits(), "compute") << "the GPUs compute";
}

TEST_F(AdviceRules, BeginAtATwentieth) {
  facts_.first_batch = 0.25;
  facts_.least_first_batch = 0.05;
  EXPECT_EQ(limits(), "first batch");
  EXPECT_EQ(first().figures,
            "Each epoch begins with a wait for its first batch, while the loader starts anew: 25% "
            "of the time.");
  EXPECT_THAT(first().option, HasSubstr("Longer epochs make it rarer. Try more loader threads"));
  facts_.least_first_batch = 0.049;
  EXPECT_EQ(limits(), "compute");
  facts_.processor_wait = 0.25;
  facts_.other_programs = 0.05;
  EXPECT_EQ(limits(), "other programs");
  EXPECT_THAT(first().option, ::testing::EndsWith("or threads (--threads)."));
  facts_.other_programs = 0.049;
  EXPECT_EQ(limits(), "compute");
}

TEST_F(AdviceRules, NameTheBackendOfSlowMessages) {
  facts_.communication = 0.25;
  EXPECT_EQ(limits(), "communication");
  EXPECT_EQ(first().figures,
            "A step waits 250.00 ms of 1000.00 ms for messages that computing does not hide (25%), "
            "over gloo.");
  EXPECT_THAT(first().option, HasSubstr("--accumulate-grad-batches"));
  facts_.strategy = "pipeline";
  EXPECT_THAT(first().option, HasSubstr("Try cuts where fewer activations"));
}

TEST_F(AdviceRules, SayHowLongAWorkerWaitsForAnotherStage) {
  facts_.strategy = "pipeline";
  facts_.communication = 0.5;
  facts_.stage_waits = 0.25;
  EXPECT_EQ(limits(), "pipeline bubble, communication");
  EXPECT_EQ(first().share, 0.25);
  EXPECT_EQ(first().figures,
            "A worker waits 250.00 ms of 1000.00 ms for another stage (25%), the way of the "
            "messages included.");
  EXPECT_EQ(first().option,
            "Try more micro-batches (--micro-batches), the schedule zb-h1, and stages of equal "
            "time.");
  EXPECT_EQ(report::advise(facts_)[1].share, 0.25) << "the rest of the waiting";
  facts_.trace = report::TraceFacts{.steps = 1, .step_seconds = 2, .stage_waits = {{0, 0.25}}};
  EXPECT_EQ(limits(), "communication, pipeline bubble") << "the trace knows it better";
  EXPECT_EQ(report::advise(facts_)[1].share, 0.125);
  EXPECT_EQ(report::advise(facts_)[1].figures,
            "A worker waits 125.00 ms of 1000.00 ms for another stage (12%).");
  facts_.trace->stage_waits = {{0, 1.5}};
  EXPECT_EQ(first().share, 0.25) << "no more than all epochs had";
  facts_.trace.reset();
  facts_.ranks = 1;
  EXPECT_EQ(limits(), "pipeline bubble") << "no messages pass between processes";
  EXPECT_EQ(first().figures, "A worker waits 250.00 ms of 1000.00 ms for another stage (25%).");
}

TEST_F(AdviceRules, SayHowLongAGpuComputes) {
  facts_.device = "cuda";
  facts_.gpu_utilisation = 0.25;
  facts_.data = facts_.first_batch = facts_.communication = 0.125;
  EXPECT_EQ(limits(), "launch overhead, loader, communication");
  EXPECT_DOUBLE_EQ(first().share, 0.375) << "what neither computing nor waiting explains";
  EXPECT_EQ(first().figures,
            "The GPUs compute 25% of the time, and waiting for data and messages does not explain "
            "the rest.");
  facts_.gpu_utilisation = 0;
  EXPECT_DOUBLE_EQ(first().share, 0.5) << "not more than computing takes";
}

TEST_F(AdviceRules, RecommendBfloat16OnlyWhereItIsFast) {
  facts_.compute = 0.75;
  facts_.precision = "32";
  EXPECT_EQ(first().option, "More processors or ranks make it faster.");
  facts_.has_bfloat16 = true;
  EXPECT_EQ(first().option, "More processors or ranks, and --precision bf16, make it faster.");
  for (const char* precision : {"bf16", "16", ""}) {
    facts_.precision = precision;
    EXPECT_EQ(first().option, "More processors or ranks make it faster.") << precision;
  }
  facts_.device = "cuda";
  facts_.precision = "32";
  EXPECT_EQ(first().option, "More GPUs, and --precision bf16, make it faster.");
}

TEST(AdviceFacts, SayWhetherTheDeviceIsFastInBfloat16) {
  const TemporaryDirectory folder;
  const auto is_fast = [&](const std::string& device, const std::string& settings) {
    write_sample_record(folder, "run", {.device = device, .settings = settings});
    const report::RunFacts facts = report::read_run_facts(folder / "run");
    EXPECT_EQ(facts.precision, "32");
    return facts.has_bfloat16;
  };
  EXPECT_TRUE(is_fast("cpu", R"(, "slow_precisions": ["16"])"));
  EXPECT_FALSE(is_fast("cpu", R"(, "slow_precisions": ["bf16", "16"])"));
  EXPECT_FALSE(is_fast("cpu", "")) << "the record of an earlier version";
  EXPECT_TRUE(is_fast("cuda", R"(, "slow_precisions": [])"));
}

TEST_F(AdviceRules, SayWhatTheirSharesAreOf) {
  EXPECT_EQ(report::basis_of_shares(facts_),
            "Percentages are shares of the mean step of rank 0 in epochs 2 to 10 (1000.00 ms).");
  const std::vector<report::Advice> advice = {
      {.limit = "loader", .share = 0.25, .figures = "It waits.", .option = "Try more."}};
  EXPECT_EQ(report::advice_text(facts_, advice),
            "mnist: ddp, 2 ranks, 1000.00 ms a step of 64 images a rank\n"
            "Percentages are shares of the mean step of rank 0 in epochs 2 to 10 (1000.00 ms).\n"
            "there is no trace.json, which would tell late ranks from slow messages: train with "
            "--trace\n"
            "loader, 25%: It waits.\n  Try more.\n");
  facts_.trace = report::TraceFacts{.steps = 4, .step_seconds = 0.5};
  EXPECT_EQ(report::basis_of_shares(facts_),
            "Percentages are shares of the mean step of rank 0 in epochs 2 to 10 (1000.00 ms). "
            "Values from the trace (4 steps of 500.00 ms) are scaled to 1000.00 ms.");
  const auto heading = [&](int pipelines) {
    facts_.pipelines = pipelines;
    const std::string text = report::advice_text(facts_, {});
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(heading(2), "mnist: ddp, 2 ranks, 1000.00 ms a step of 64 images a pipeline");
  EXPECT_EQ(heading(1), "mnist: ddp, 2 ranks, 1000.00 ms a step of 64 images") << "all of them";
  facts_.ranks = 1;
  facts_.trace.reset();
  EXPECT_THAT(report::advice_text(facts_, {}), ::testing::Not(HasSubstr("trace.json")))
      << "there are no others to wait for";
}

}  // namespace
}  // namespace lockstep::testing_support
