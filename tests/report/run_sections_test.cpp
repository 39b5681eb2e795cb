// Sections of the report's page, from runs that are made by hand.
#include <lockstep/report/html/run_sections.h>

#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/report/html/comparison.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two steps of two ranks.
html::RunData traced() {
  html::TracedRun trace{.ranks = 2};
  const auto wait = [&](int rank, double begin, double end) {
    trace.spans.push_back({.rank = rank,
                           .name = "wait for data",
                           .category = "phase",
                           .track = "training",
                           .begin = begin,
                           .end = end});
  };
  wait(0, 0, 30);
  wait(1, 0, 20);
  wait(0, 40, 50);
  wait(0, 90, 120);  // in no step
  wait(0, 150, 160);
  const auto value = [&](int rank, const char* name, double time, double number) {
    trace.values.push_back({.rank = rank, .name = name, .time = time, .value = number});
  };
  value(0, "other", 5, 9);
  value(0, "ready batches", 10, 3);
  value(1, "ready batches", 15, 2);
  value(0, "ready batches", 20, 7);  // when the step asked, there were three
  value(0, "ready batches", 110, 0);
  for (int step = 0; step < 2; ++step) {
    const double begin = 100 * step;
    html::TracedStep one{.name = "step " + std::to_string(4 + step)};
    for (int rank = 0; rank < 2; ++rank) {
      one.ranks[rank] = {.begin = begin, .end = begin + 99};
    }
    trace.steps.push_back(one);
  }
  html::RunData run{.name = "run"};
  run.trace = trace;
  return run;
}

TEST(LoaderQueue, HasTheFirstNumberAndAllWaitsOfAStep) {
  const std::string text = html::queue_of(traced());
  for (const char* row : {"rank 0</td><td>4</td><td>3</td><td>0.040</td>",
                          "rank 0</td><td>5</td><td>0</td><td>0.010</td>",
                          "rank 1</td><td>4</td><td>2</td><td>0.020</td>"}) {
    EXPECT_THAT(text, HasSubstr(row));
  }
  EXPECT_THAT(text, Not(HasSubstr("rank 1</td><td>5</td>"))) << "it asked for no batch";
  EXPECT_EQ(html::queue_of({.name = "a run without a trace"}), "");
}

TEST(TracedStepSection, ListsWhatRanWithinTheStep) {
  html::RunData run = traced();
  const auto span = [&](const char* name, double begin, double end) {
    run.trace->spans.push_back({.rank = 1,
                                .name = name,
                                .category = "work",
                                .track = "loader",
                                .begin = begin,
                                .end = end});
  };
  span("early", 60, 100);
  span("into", 70, 101);
  span("inside", 150, 151);
  span("out of", 198, 250);
  span("late", 199, 210);
  const std::string text = html::traced_step_of(run);
  EXPECT_THAT(text, HasSubstr("inside</td><td>0.050</td><td>0.001</td>"));
  EXPECT_THAT(text, HasSubstr("into</td>"));
  EXPECT_THAT(text, HasSubstr("out of</td>"));
  EXPECT_THAT(text, Not(HasSubstr("early</td>")));
  EXPECT_THAT(text, Not(HasSubstr("late</td>")));
}

// Twelve steps of one rank of one millisecond each, of which the last is not all accounted for.
html::RunData traced_in_phases() {
  html::TracedRun trace{.ranks = 1};
  const auto phase = [&](const char* name, double begin, double end) {
    trace.spans.push_back(
        {.name = name, .category = "phase", .track = "training", .begin = begin, .end = end});
  };
  for (int step = 1; step <= 12; ++step) {
    const double begin = 2000 * step;
    phase("forward", begin, begin + 300);
    phase("clip", begin + 300, begin + 309);
    phase("backward", begin + 309, begin + 900);
    phase("optimizer", begin + (step == 12 ? 950 : 900), begin + 1000);
    trace.steps.push_back(
        {.name = "step " + std::to_string(step), .ranks = {{0, {begin, begin + 1000}}}});
  }
  html::RunData run{.name = "run"};
  run.trace = trace;
  return run;
}

TEST(TracedStepSection, SaysWhatDecidedHowLongTheLastStepTook) {
  const std::string text = html::traced_step_of(traced_in_phases());
  EXPECT_THAT(text, HasSubstr("The path of step 12 accounts for 95.00% of its 1.000 ms: forward "
                              "30.00%, backward 59.10%, between phases 5.00%, optimizer 5.00%."))
      << "without what took less than a hundredth";
  const auto row = [](const char* what, const char* milliseconds, const char* share) {
    return std::string("rank 0</td><td class=\"t\">") + what + "</td><td>" + milliseconds +
           "</td><td>" + share + "</td>";
  };
  EXPECT_THAT(text, HasSubstr(row("forward", "0.300", "30.00%")));
  EXPECT_THAT(text, HasSubstr(row("clip", "0.009", "0.90%")));
  EXPECT_THAT(text, HasSubstr(row("between phases", "0.050", "5.00%")));
}

TEST(TracedStepSection, HasTheCriticalPathsOfTheLastTenSteps) {
  const std::string text = html::traced_step_of(traced_in_phases());
  std::string titles;
  for (const char* part : {"forward", "clip", "backward", "optimizer", "between phases"}) {
    titles += std::string("<th scope=\"col\">") + part + ", ms</th>";
  }
  EXPECT_THAT(text, HasSubstr(titles));
  const auto row = [](int step, const char* parts) {
    return ">step " + std::to_string(step) + "</td>" + parts;
  };
  const char* const whole =
      "<td>0.300</td><td>0.009</td><td>0.591</td><td>0.100</td><td>0.000</td>";
  for (int step = 1; step <= 12; ++step) {
    const char* const cut =
        "<td>0.300</td><td>0.009</td><td>0.591</td><td>0.050</td><td>0.050</td>";
    const std::string expected = row(step, step == 12 ? cut : whole);
    if (step <= 2) {
      EXPECT_THAT(text, Not(HasSubstr(row(step, "<td>"))));
    } else {
      EXPECT_THAT(text, HasSubstr(expected));
    }
  }
  EXPECT_THAT(text, HasSubstr("the mean of 12 steps."));
}

TEST(LoaderQueue, HasOnlyStepsWithANumber) {
  html::RunData run = traced();
  run.trace->steps[0].name = "step x";
  const std::string text = html::queue_of(run);
  EXPECT_THAT(text, HasSubstr("rank 0</td><td>5</td>"));
  EXPECT_THAT(text, Not(HasSubstr("<td>0.040</td>")));
}

TEST(Comparison, BeginsWithTheSettingsThatDiffer) {
  const html::Runs runs = {
      {.name = "a", .configuration = {{"recipe", "mnist"}, {"backend", "shm"}, {"only", "x"}}},
      {.name = "b", .configuration = {{"recipe", "mnist"}, {"backend", "gloo"}, {"late", "y"}}}};
  const std::string text = html::configuration(runs);
  const std::string rows[] = {
      "<tr><td class=\"t\">backend</td><td class=\"t\">shm</td><td class=\"t\">gloo</td></tr>",
      "<tr><td class=\"t\">only</td><td class=\"t\">x</td><td class=\"t\"></td></tr>",
      "<tr><td class=\"t\">late</td><td class=\"t\"></td><td class=\"t\">y</td></tr>",
      "<tr><td class=\"t\">recipe</td><td class=\"t\">mnist</td><td class=\"t\">mnist</td></tr>"};
  std::size_t at = 0;
  for (const std::string& row : rows) {
    const std::size_t found = text.find(row, at);
    ASSERT_NE(found, std::string::npos) << row << '\n' << text;
    at = found;
  }
}

TEST(Comparison, HasTheLastFiguresOfEachRun) {
  html::RunData done{.name = "a", .state = "complete", .ranks = 2, .seconds = 75};
  done.peak_bytes = 3e8;
  done.epochs = {
      {.epoch = 1,
       .steps = 10,
       .seconds = 1,
       .train_loss = 0.5,
       .images_per_second = 1200,
       .metrics = {{"accuracy", 0.75}}},
      {.epoch = 2, .steps = 10, .seconds = 1, .train_loss = 0.123456, .images_per_second = 1000}};
  done.facts.emplace();
  done.facts->step_seconds = 0.01;
  const std::string text = html::overview({done, {.name = "b", .state = "running"}});
  EXPECT_THAT(text,
              HasSubstr("<tr><td class=\"t\">a</td><td>2</td><td>2</td><td>0.1235</td><td>0.75</td>"
                        "<td>1,200</td><td>10.00 ms</td><td>75.0 s</td><td>300 MB</td></tr>"));
  EXPECT_THAT(text, HasSubstr("<tr><td class=\"t\">b</td><td>1</td><td>0</td><td></td><td></td>"
                              "<td></td><td></td><td></td><td></td></tr>"));
  EXPECT_THAT(text, HasSubstr("<b>b</b>: <span class=\"running\">running</span>"));
}

TEST(TracedStepSection, SaysWhatItLacks) {
  html::RunData run{.name = "run"};
  EXPECT_THAT(html::traced_step_of(run),
              HasSubstr("<p>There is no trace.json. Train with --trace"));
  run.trace.emplace();
  EXPECT_THAT(html::traced_step_of(run),
              HasSubstr("<p>The trace has no whole step that all ranks share.</p>"));
  EXPECT_EQ(html::queue_of(run), "");
}

TEST(TracedStepSection, SaysHowWellTheRanksKnowTheClock) {
  html::RunData run = traced();
  run.trace->uncertainty = {{0, 0.0}, {1, 2.5}};
  EXPECT_THAT(html::traced_step_of(run),
              HasSubstr("on rank 0's clock, which the other ranks know to 2.5 \u00b5s."));
  run.trace->ranks = 1;
  EXPECT_THAT(html::traced_step_of(run), Not(HasSubstr("clock")));
}

}  // namespace
}  // namespace lockstep::testing_support
