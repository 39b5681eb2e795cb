// The report's sections about all runs, and the links of the page, which the other tests do not
// spell out.
#include <lockstep/report/html/comparison.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/report/html/report_page.h>
#include <lockstep/report/html/run_sections.h>
#include <tests/report/sample_record.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/well_formed.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A run with an epoch of ten steps for each of these rates. Its loss is halved by each epoch.
html::RunData run_of_rates(const std::string& name, const std::vector<double>& rates) {
  html::RunData run{.name = name};
  double loss = 0.5;
  for (const double rate : rates) {
    html::EpochData epoch{.epoch = static_cast<double>(run.epochs.size() + 1),
                          .steps = 10,
                          .seconds = 1,
                          .train_loss = loss,
                          .images_per_second = rate};
    epoch.phases.assign(html::phase_names().size(), 0.0);
    run.epochs.push_back(epoch);
    loss /= 2;
  }
  return run;
}

// The rest of a page from the figure with this title on.
std::string from_figure(const std::string& text, const std::string& title) {
  const std::size_t begin = text.find("<figure aria-label=\"" + title + "\">");
  return begin == std::string::npos ? "no figure: " + title : text.substr(begin);
}

TEST(ComparedRuns, HaveTheRateOfTheirBestEpoch) {
  html::RunData run = run_of_rates("a", {1000, 1200, 1100});
  run.work = "mnist, loader native";
  run.ranks = 4;
  run.global_batch = 256;
  run.facts.emplace();
  run.facts->strategy = "zero1";
  const std::vector<html::RankRate> rates = html::rates_of({run_of_rates("begun", {900}), run});
  ASSERT_EQ(rates.size(), 1U) << "the other run has not trained long enough";
  EXPECT_EQ(rates[0].strategy, "zero1");
  EXPECT_EQ(rates[0].work, "mnist, loader native");
  EXPECT_EQ(rates[0].source, "a");
  EXPECT_EQ(rates[0].ranks, 4);
  EXPECT_EQ(rates[0].global_batch, 256);
  EXPECT_EQ(rates[0].images_per_second, 1200) << "the last epoch was slower";
}

TEST(ComparedRuns, HaveThePhasesOfEpochsWithSteps) {
  html::RunData run = run_of_rates("a", {1000, 1200});
  run.epochs[0].phases[0] = 0.25;
  run.epochs[0].phases[1] = 0.5;
  run.epochs[1].phases[2] = 0.125;
  run.epochs[1].steps = 0;
  const std::string phases = from_figure(html::speed({run}), "Phases of a step");
  EXPECT_THAT(phases,
              HasSubstr("<th scope=\"col\" class=\"t\">epoch</th><th scope=\"col\">data</th>"
                        "<th scope=\"col\">forward</th><th scope=\"col\">backward</th>"
                        "</tr>"))
      << "without phases that no epoch has";
  EXPECT_THAT(phases, HasSubstr("<tr><td class=\"t\">epoch 1</td><td>25.0</td><td>50.0</td>"
                                "<td>0</td></tr>"));
  EXPECT_THAT(phases, Not(HasSubstr("epoch 2"))) << "it has no step";
  EXPECT_THAT(phases, HasSubstr("the mean of each epoch. Communication is what computing does not "
                                "hide.</p>"))
      << "the chart has all epochs";
  const std::string of_two =
      from_figure(html::speed({run, run_of_rates("b", {1})}), "Phases of a step");
  EXPECT_THAT(of_two, HasSubstr("<td class=\"t\">a, epoch 1</td>"));
  EXPECT_THAT(of_two, HasSubstr("<td class=\"t\">b, epoch 1</td>"));
}

TEST(ComparedRuns, HaveTheirThroughputFromZeroOn) {
  const std::string text = html::speed({run_of_rates("a", {1000, 1200})});
  EXPECT_EQ(malformed(text), "");
  EXPECT_THAT(text, HasSubstr("<figure aria-label=\"Throughput\">"));
  EXPECT_THAT(text, HasSubstr("class=\"s e\">0</text>"));
  EXPECT_THAT(text, HasSubstr("a, epoch 2: 1200</title>"));
  EXPECT_THAT(text, HasSubstr("<th scope=\"col\" class=\"t\">curve</th><th scope=\"col\">epoch</th>"
                              "<th scope=\"col\">images/s</th>"));
  EXPECT_THAT(text, HasSubstr("<tr><td class=\"t\">a</td><td>2</td><td>1200</td></tr>"));
  EXPECT_THAT(html::utilisation({run_of_rates("a", {1000})}), Not(HasSubstr("GPU")));
}

// A run's curves have one color, and that of its evaluations is dashed.
TEST(ComparedRuns, HaveTheLossOfTrainingAndOfEvaluations) {
  std::vector<html::RunData> runs = {run_of_rates("a", {1, 1}), run_of_rates("b", {1})};
  runs[0].epochs[1].metrics = {{"loss", 0.375}, {"accuracy", 0.75}};
  runs[1].epochs[0].metrics = {{"loss", 0.625}};
  const std::string text = html::learning(runs);
  EXPECT_EQ(malformed(text), "");
  for (const char* part : {"a, training, epoch 1: 0.5<", "a, training, epoch 2: 0.25<",
                           "a, validation, epoch 2: 0.375<", "b, training, epoch 1: 0.5<",
                           "b, validation, epoch 1: 0.625<", "<path class=\"a k0\" d=\"M64 ",
                           "<path class=\"a k0 o\" d=\"M", "<path class=\"a k1\" d=\"M",
                           "<path class=\"a k1 o\" d=\"M",
                           "<figure aria-label=\"Validation: accuracy\">", "a, epoch 2: 0.75<"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  for (const char* row :
       {"a, training</td><td>1</td><td>0.5</td>", "a, training</td><td>2</td><td>0.25</td>",
        "a, validation</td><td>2</td><td>0.375</td>", "b, training</td><td>1</td><td>0.5</td>",
        "b, validation</td><td>1</td><td>0.625</td>"}) {
    EXPECT_THAT(text, HasSubstr(str("<tr><td class=\"t\">", row, "</tr>\n")));
  }
  EXPECT_THAT(text, Not(HasSubstr("\"a k2"))) << "two runs have two colors";
  EXPECT_THAT(text, Not(HasSubstr("Validation: loss"))) << "it is beside the training's";
  const std::string alone = html::learning({runs[0]});
  EXPECT_THAT(alone, HasSubstr("<title>training, epoch 1: 0.5<"));
  EXPECT_THAT(alone, HasSubstr("<title>validation, epoch 2: 0.375<"));
}

// A resumed epoch's times and loss are those of its rest, but its evaluation is of the whole epoch;
// a run that ended within its last epoch has an evaluation after a part of it, too.
TEST(ComparedRuns, MarkWhatCoversAPartOfAnEpoch) {
  html::RunData run = run_of_rates("a", {1, 1, 1});
  for (html::EpochData& epoch : run.epochs) epoch.metrics = {{"loss", 2}, {"accuracy", 0.75}};
  run.epochs[0].steps_per_epoch = 10;  // a whole epoch
  run.epochs[1].steps_per_epoch = run.epochs[2].steps_per_epoch = 32;
  run.epochs[1].steps_before = 22;
  const std::string learning = html::learning({run});
  EXPECT_EQ(malformed(learning), "");
  for (const char* title :
       {"training, epoch 1: 0.5<", "training, epoch 2: 0.25 (10 of 32 steps)<",
        "training, epoch 3: 0.125 (10 of 32 steps)<", "validation, epoch 2: 2<",
        "validation, epoch 3: 2 (after 10 of 32 steps)<", "a, epoch 2: 0.75<",
        "a, epoch 3: 0.75 (after 10 of 32 steps)<", ">part of an epoch</text>"}) {
    EXPECT_THAT(learning, HasSubstr(title));
  }
  for (const char* row :
       {"training</td><td>1</td>", "training</td><td>2 (10 of 32 steps)</td>",
        "validation</td><td>2</td>", "validation</td><td>3 (after 10 of 32 steps)</td>"}) {
    EXPECT_THAT(learning, HasSubstr(row));
  }
  run.epochs[2].steps_before = 20;
  EXPECT_THAT(html::learning({run}), HasSubstr("a, epoch 3: 0.75 (after 30 of 32 steps)<"));
  EXPECT_THAT(html::speed({run}), HasSubstr("a, epoch 2: 1 (10 of 32 steps)<"));
  EXPECT_THAT(html::utilisation({run}), HasSubstr("a, epoch 3: 0 (10 of 32 steps)<"));
  const std::string whole = html::learning({run_of_rates("a", {1, 1})});
  EXPECT_THAT(whole, Not(HasSubstr("part of an epoch")));
}

TEST(ComparedRuns, HaveMetricsNearTheirSmallestValue) {
  html::RunData run = run_of_rates("a", {1, 1});
  run.epochs[0].metrics = {{"accuracy", 0.75}};
  run.epochs[1].metrics = {{"accuracy", 0.8}};
  EXPECT_THAT(from_figure(html::learning({run}), "Validation: accuracy"),
              HasSubstr("class=\"s e\">0.76</text>"));
}

// Several runs have a table of their best values, without the runs that have none.
TEST(ComparedRuns, HaveATableOfTheirBestValues) {
  std::vector<html::RunData> runs = {run_of_rates("a", {1}), run_of_rates("<b>", {1}),
                                     run_of_rates("c", {1})};
  EXPECT_THAT(html::overview(runs), Not(HasSubstr("best value"))) << "no run has one";
  runs[1].best = BestEvaluation{
      .name = "accuracy", .value = 0.98768, .epoch = 2, .weights = "b/model.safetensors"};
  runs[2].best = BestEvaluation{.name = "train_loss", .value = 0.25, .epoch = 1};
  const std::string text = html::overview(runs);
  EXPECT_EQ(malformed(text), "");
  EXPECT_THAT(
      text,
      HasSubstr("<th scope=\"col\" class=\"t\">run</th><th scope=\"col\" class=\"t\">best value"
                "</th><th scope=\"col\" class=\"t\">weights of the best value</th>"
                "</tr></thead>\n<tbody>\n"
                "<tr><td class=\"t\">&lt;b&gt;</td><td class=\"t\">validation accuracy 0.9877 "
                "in epoch 2</td><td class=\"t\">b/model.safetensors</td></tr>\n"
                "<tr><td class=\"t\">c</td><td class=\"t\">training loss 0.25 in epoch 1</td>"
                "<td class=\"t\"></td></tr>\n</tbody>"));
}

// With 31 epochs the chart shows every second one, whichever runs they belong to.
TEST(ComparedRuns, ShareTheBarsOfTheirPhases) {
  const auto phases_of_epochs = [](std::size_t first, std::size_t second) {
    std::vector<html::RunData> runs = {run_of_rates("a", std::vector<double>(first, 1)),
                                       run_of_rates("b", std::vector<double>(second, 1))};
    for (html::RunData& run : runs) {
      for (html::EpochData& epoch : run.epochs) epoch.phases[0] = 0.25;
    }
    return from_figure(html::speed(runs), "Phases of a step");
  };
  const std::string all = phases_of_epochs(10, 20);
  EXPECT_THAT(all, HasSubstr("b, epoch 2, data: 25.0 ms"));
  EXPECT_THAT(all, Not(HasSubstr("The chart has one epoch of ")));
  const std::string some = phases_of_epochs(11, 20);
  EXPECT_THAT(some, HasSubstr("The chart has one epoch of 2, the rows all."));
  EXPECT_THAT(some, HasSubstr("b, epoch 1, data: 25.0 ms"));
  EXPECT_THAT(some, Not(HasSubstr("b, epoch 2, data: 25.0 ms")));
  EXPECT_THAT(some, HasSubstr("b, epoch 2</td><td>25.0</td>"));
}

TEST(ComparedRuns, SayWhenAndHowTheyWereStarted) {
  const html::RunData odd{.name = "<a>", .state = "odd"};
  const std::string text = html::overview({odd});
  EXPECT_THAT(text, HasSubstr("<p><b>&lt;a&gt;</b>: <span class=\"soft\">odd</span>, a record "
                              "without the command and the time of its run</p>"));
  EXPECT_THAT(text, HasSubstr("<div class=\"card\"><span>epochs</span><b>0</b></div>"));
  EXPECT_THAT(text, HasSubstr("<p>The run has no whole epoch.</p>"));
  EXPECT_THAT(html::overview({{.name = "a", .state = "running"}}),
              HasSubstr("<p>The run has no whole epoch yet.</p>"));
  for (const char* absent : {"<span>training loss</span>", "<span>best images/s</span>",
                             "<span>step</span>", "<span>run time</span>", "<span>memory</span>"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
  for (const char* state : {"complete", "failed", "running"}) {
    html::RunData run = run_of_rates("a", {1});
    run.state = state;
    run.error = "rank 1 <died>";
    run.started = "Monday";
    run.command = "train <b>";
    const std::string shown = html::overview({run});
    EXPECT_THAT(shown, HasSubstr(str("<span class=\"", state, "\">", state, ": rank 1 &lt;died&gt;",
                                     "</span>, started Monday<br/><code>train &lt;b&gt;</code>")));
    EXPECT_THAT(shown, Not(HasSubstr("no whole epoch")));
    EXPECT_THAT(shown, HasSubstr("<span>best images/s</span><b>1</b>"));
  }
}

TEST(ComparedRuns, HaveTheirCommandsByName) {
  html::RunData run{.name = "a"};
  run.command = "train a";
  EXPECT_THAT(html::commands_of({run, {.name = "b"}}),
              ElementsAre(::testing::Pair("a", "train a"), ::testing::Pair("b", "")));
}

TEST(PictureSection, ShowsEachPictureWithItsSizeAndCommand) {
  html::RunData run{.name = "<run>"};
  run.command = "train & draw";
  run.pictures = {{.name = "a.png", .png = "foobar", .width = 8, .height = 6},
                  {.name = "b\".png", .png = "f", .width = 600, .height = 400, .divisor = 4}};
  EXPECT_EQ(
      html::pictures_of(run),
      "<figure aria-label=\"a.png\">\n<figcaption><b>a.png</b><p>8 x 6 pixels</p></figcaption>"
      "\n<img alt=\"a.png of &lt;run&gt;\" src=\"data:image/png;base64,Zm9vYmFy\"/>\n"
      "<p><code>train &amp; draw</code></p>\n</figure>\n"
      "<figure aria-label=\"b&quot;.png\">\n<figcaption><b>b&quot;.png</b><p>600 x 400 pixels, "
      "shown at 1/4</p></figcaption>\n<img alt=\"b&quot;.png of &lt;run&gt;\" "
      "src=\"data:image/png;base64,Zg==\"/>\n<p><code>train &amp; draw</code></p>\n</figure>"
      "\n");
  EXPECT_EQ(html::pictures_of({.name = "run"}), "");
}

// The links at the top of a page, each with the title of its section.
std::vector<std::string> section_links(const std::string& page) {
  const std::string before = "<a href=\"#";
  std::vector<std::string> links;
  for (auto at = page.find(before); at != std::string::npos; at = page.find(before, at + 1)) {
    const std::size_t begin = at + before.size();
    links.push_back(page.substr(begin, page.find("</a>", begin) - begin));
  }
  return links;
}

TEST(PageLinks, LeadToEachSectionInOrder) {
  const TemporaryDirectory folder;
  write_sample_record(folder, "a", {.ranks = 1});
  write_sample_record(folder, "b", {.ranks = 2});
  const std::string one = html::report_page({folder / "a"}, "lockstep report <a>");
  EXPECT_THAT(section_links(one),
              ElementsAre("overview\">Overview", "limits\">What limited the speed",
                          "learning\">Learning", "speed\">Speed", "step\">A step",
                          "utilisation\">Utilisation", "configuration\">Configuration"));
  const std::string two = html::report_page({folder / "a", folder / "b"}, "");
  EXPECT_THAT(
      section_links(two),
      ElementsAre("overview\">Overview", "limits\">What limited the speed", "learning\">Learning",
                  "speed\">Speed", "scaling\">Scaling", "run-1\">a", "run-2\">b",
                  "utilisation\">Utilisation", "configuration\">Configuration"));
  for (const std::string& page : {one, two}) {
    for (const std::string& link : section_links(page)) {
      const std::size_t end = link.find('"');
      EXPECT_THAT(page, HasSubstr("<section id=\"" + link.substr(0, end) + "\">\n<h2>" +
                                  link.substr(end + 2) + "</h2>\n"));
    }
    EXPECT_THAT(page, HasSubstr("href=\"#report\">Skip to the report</a>"));
    EXPECT_THAT(page, HasSubstr("<main id=\"report\">"));
  }
  EXPECT_THAT(one, HasSubstr("<h1>a</h1>"));
  EXPECT_THAT(one, HasSubstr("Made by <code>lockstep report &lt;a&gt;</code>"));
  EXPECT_THAT(two, HasSubstr("<h1>a, b</h1>"));
  EXPECT_THAT(two, HasSubstr("<h3>b</h3>\n<p>Percentages are shares of the mean step of rank 0"));
}

}  // namespace
}  // namespace lockstep::testing_support
