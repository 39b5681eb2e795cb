// Pipeline schedules as text and pictures, from nominal times and from a fixed measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/cli/explain/pipeline_svg.h>
#include <lockstep/cli/explain/pipeline_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/well_formed.h>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::message_of;

PipelinePicture picture_of_schedule(const std::string& schedule, int stages, int micro_batches,
                                    double message_cost = 0) {
  return picture_of(resolve(ExplainPipelineArguments{.schedule = schedule,
                                                     .stages = stages,
                                                     .micro_batches = micro_batches,
                                                     .message_cost = message_cost}));
}

TEST(PipelineText, ShowsLinesOfTimeAndWhatWorkersHold) {
  EXPECT_EQ(pipeline_text(picture_of_schedule("1f1b", 2, 3), 80),
            "1f1b: 2 stages on 2 workers, 3 micro-batches\n"
            "\n"
            "replayed: a forward takes 1, a backward 2, either half of one 1, a message nothing\n"
            "time         0         10\n"
            "worker 0     FF..BBFBB.BB\n"
            "micro-batch  01  0 21  2\n"
            "worker 1     .FBBFBBFBB..\n"
            "micro-batch   00 11 22\n"
            "\n"
            "F forward   B backward   . waits\n"
            "\n"
            "worker  stages  holds  waits, replayed\n"
            "     0       0      2           25.00%\n"
            "     1       1      1           25.00%\n"
            "holds: activations, one for each stage and micro-batch, at most at once\n"
            "\n"
            "bubble, the share of all workers' time in which they do not compute\n"
            "  25.00%  replayed: a forward takes 1, a backward 2, either half of one 1, a message "
            "nothing\n"
            "  25.00%  by formula: (p - 1) / (m + p - 1) with p = 2 and m = 3\n"
            "\n"
            "table, a line for each worker\n"
            "0F0,0F1,0B0,0F2,0B1,0B2\n"
            "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(PipelineText, SpeaksOfOneStage) {
  EXPECT_EQ(pipeline_text(picture_of_schedule("1f1b", 1, 2), 80),
            "1f1b: 1 stage on 1 worker, 2 micro-batches\n"
            "\n"
            "replayed: a forward takes 1, a backward 2, either half of one 1, a message nothing\n"
            "time         0\n"
            "worker 0     FBBFBB\n"
            "micro-batch  00 11\n"
            "\n"
            "F forward   B backward   . waits\n"
            "\n"
            "worker  stages  holds  waits, replayed\n"
            "     0       0      1            0.00%\n"
            "holds: activations, one for each stage and micro-batch, at most at once\n"
            "\n"
            "bubble, the share of all workers' time in which they do not compute\n"
            "   0.00%  replayed: a forward takes 1, a backward 2, either half of one 1, a message "
            "nothing\n"
            "   0.00%  by formula: (p - 1) / (m + p - 1) with p = 1 and m = 2\n"
            "\n"
            "table, a line for each worker\n"
            "0F0,0B0,0F1,0B1\n");
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    const bool has_two = std::string(schedule) == "zbv";
    const PipelinePicture picture = picture_of_schedule(schedule, has_two ? 2 : 1, 1);
    const std::string title = std::string(schedule) + (has_two ? ": 2 stages" : ": 1 stage") +
                              " on 1 worker, 1 micro-batch";
    EXPECT_EQ(picture.title, title);
    EXPECT_DOUBLE_EQ(picture.bubbles[0].bubble, 0) << schedule;
    EXPECT_THAT(pipeline_svg(picture), HasSubstr(">" + title + "</text>"));
  }
}

// Long lines continue below, broken at a multiple of ten.
TEST(PipelineText, WrapsLinesOfTime) {
  const std::string text = pipeline_text(picture_of_schedule("gpipe", 2, 8), 36);
  EXPECT_THAT(text, HasSubstr("time         0         10\n"
                              "worker 0     FFFFFFFF...BBBBBBBBB\n"
                              "micro-batch  01234567   0 1 2 3 4\n"));
  EXPECT_THAT(text, HasSubstr("time         20\n"
                              "worker 0     BBBBBBB\n"
                              "micro-batch   5 6 7\n"));
  EXPECT_THAT(text, HasSubstr("\n0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0B0,\n    0B1,"));
}

TEST(PipelineText, NamesTheStagesOfWorkersThatHaveSeveral) {
  const std::string text = pipeline_text(picture_of_schedule("zbv", 4, 4), 80);
  EXPECT_THAT(text, HasSubstr("zbv: 4 stages on 2 workers, 4 micro-batches\n"));
  EXPECT_THAT(text, HasSubstr("\nstage        000"));
  EXPECT_THAT(text, HasSubstr("     0    0, 3      4"));
  EXPECT_THAT(text, HasSubstr("F forward   I gradients of inputs   W gradients of weights"));
}

TEST(PipelinePicture, CountsMessagesThatTakeTime) {
  const PipelinePicture without = picture_of_schedule("1f1b", 2, 3);
  const PipelinePicture with = picture_of_schedule("1f1b", 2, 3, 0.5);
  EXPECT_GT(with.bubbles[0].bubble, without.bubbles[0].bubble);
  EXPECT_THAT(with.bubbles[0].name, HasSubstr("a message 0.5"));
  EXPECT_EQ(with.charts[0].timeline.workers[0].size(), 12U);  // 6 actions, 3 sends, 3 receives
  EXPECT_THAT(pipeline_text(with, 80), HasSubstr("s sends"));
}

TEST(PipelinePicture, HasNoFormulaWhereNoneHolds) {
  EXPECT_EQ(picture_of_schedule("zb-h1", 4, 4).bubbles.size(), 2U);
  EXPECT_EQ(picture_of_schedule("zb-h1", 4, 3).bubbles.size(), 1U);
}

// A measurement of two workers that wait for each other's messages. Times are in seconds.
bench::PipelineMeasurement measured_step() {
  using pipeline::Kind;
  bench::PipelineMeasurement measured;
  measured.table = with_messages(pipeline::gpipe(2, 1));
  measured.timeline.end = 0.010;
  measured.timeline.workers = {{{{Kind::kForward, 0, 0}, 0, 0.002},
                                {{Kind::kSendForward, 0, 0}, 0.002, 0.003},
                                {{Kind::kReceiveBackward, 0, 0}, 0.003, 0.008},
                                {{Kind::kBackward, 0, 0}, 0.008, 0.010}},
                               {{{Kind::kReceiveForward, 1, 0}, 0, 0.004},
                                {{Kind::kForward, 1, 0}, 0.004, 0.005},
                                {{Kind::kBackward, 1, 0}, 0.005, 0.007},
                                {{Kind::kSendBackward, 1, 0}, 0.007, 0.0075}}};
  measured.worker_bytes = {1 << 20, 1 << 19};
  measured.stage_bytes = {1 << 20, 1 << 19};
  measured.step_seconds = 0.0125;
  measured.empty_step_seconds = 0.0005;
  measured.processors = 1;
  return measured;
}

ExplainPipelineSettings settings_of_measured_step() {
  return resolve(ExplainPipelineArguments{
      .schedule = "gpipe", .stages = 2, .micro_batches = 1, .measured = true});
}

PipelinePicture picture_of_measured_step() {
  return picture_of(settings_of_measured_step(), measured_step());
}

TEST(PipelinePicture, ComparesAStepWithItsReplay) {
  const PipelinePicture picture = picture_of_measured_step();
  ASSERT_EQ(picture.charts.size(), 2U);
  EXPECT_EQ(picture.charts[0].unit, "ms");
  EXPECT_DOUBLE_EQ(picture.charts[0].timeline.end, 10);
  EXPECT_NEAR(picture.charts[1].timeline.end, 2 + 1 + 2 + 2, 1e-9);  // messages take no time
  EXPECT_EQ(picture.charts[0].name, "measured");
  EXPECT_EQ(picture.charts[0].explanation, "the step that took the median time");
  EXPECT_EQ(picture.charts[1].name, "replayed");
  EXPECT_EQ(picture.charts[1].explanation,
            "the same durations without the waits: the best that the table allows");
  ASSERT_EQ(picture.bubbles.size(), 3U);
  EXPECT_EQ(picture.bubbles[0].name, "measured");
  EXPECT_EQ(picture.bubbles[1].name, "replayed from the measured durations");
  EXPECT_EQ(picture.bubbles[2].name, "by formula: (p - 1) / (m + p - 1) with p = 2 and m = 1");
  EXPECT_NEAR(picture.bubbles[0].bubble, 1 - 7.0 / 20, 1e-9);
  EXPECT_NEAR(picture.bubbles[1].bubble, 1 - 7.0 / 14, 1e-9);
  EXPECT_NEAR(picture.bubbles[2].bubble, 0.5, 1e-9);
  EXPECT_NEAR(picture.charts[0].timeline.bubble_of(1), 0.7, 1e-9);
  const auto json = nlohmann::json::parse(picture_json(picture));
  EXPECT_NEAR(json["bubble"].get<double>(), 0.65, 1e-9);
  EXPECT_NEAR(json["bubble_replayed"].get<double>(), 0.5, 1e-9);
  EXPECT_NEAR(json["bubble_formula"].get<double>(), 0.5, 1e-9);
  EXPECT_THAT(json["peak_activations"].get<std::vector<int>>(), ElementsAre(1, 1));
  EXPECT_THAT(json["worker_bytes"].get<std::vector<int>>(), ElementsAre(1 << 20, 1 << 19));
  EXPECT_THAT(json["stage_bytes"].get<std::vector<int>>(), ElementsAre(1 << 20, 1 << 19));
}

TEST(PipelinePicture, ShowsTimesInTheUnitThatFits) {
  using Case = std::tuple<double, const char*, double>;
  for (const auto& [seconds, unit, end] : {Case(0.000999, "us", 999), Case(0.001, "ms", 1)}) {
    bench::PipelineMeasurement measured = measured_step();
    measured.timeline.end = seconds;
    const PipelinePicture picture = picture_of(settings_of_measured_step(), measured);
    for (const PipelineChart& chart : picture.charts) EXPECT_EQ(chart.unit, unit);
    const pipeline::Timeline& shown = picture.charts[0].timeline;
    EXPECT_NEAR(shown.end, end, 1e-9);
    EXPECT_NEAR(shown.workers[0][1].begin, 0.002 * end / seconds, 1e-9);
    EXPECT_NEAR(shown.workers[0][1].end, 0.003 * end / seconds, 1e-9);
    EXPECT_NEAR(picture.charts[1].timeline.end, 0.007 * end / seconds, 1e-9);
  }
}

// Two workers with a thread each want two processors. Zero processors are an unknown number.
TEST(PipelinePicture, SaysWhenWorkersShareProcessors) {
  ExplainPipelineSettings settings = settings_of_measured_step();
  bench::PipelineMeasurement measured = measured_step();
  const auto notes_with = [&](int threads, int processors) {
    settings.toys->threads = threads;
    measured.processors = processors;
    return picture_of(settings, measured).notes;
  };
  EXPECT_THAT(notes_with(1, 2), testing::IsEmpty());
  EXPECT_THAT(notes_with(1, 0), testing::IsEmpty());
  EXPECT_THAT(notes_with(2, 4), testing::IsEmpty());
  EXPECT_THAT(notes_with(1, 1),
              ElementsAre("The workers wanted 2 processors and shared 1: durations hold times in "
                          "which a worker had none."));
  EXPECT_THAT(notes_with(2, 3).at(0), HasSubstr("The workers wanted 4 processors and shared 3: "));
  EXPECT_EQ(executor_share({.step = 0, .empty_step = 1}), 0);
}

// A message of the table itself takes its time, too, and no second one is added.
TEST(PipelinePicture, AddsMessagesToTablesWithoutThemOnly) {
  ExplainPipelineSettings settings = resolve(ExplainPipelineArguments{
      .schedule = "1f1b", .stages = 2, .micro_batches = 3, .message_cost = 0.5});
  const pipeline::Timeline added = picture_of(settings).charts[0].timeline;
  settings.table = with_messages(settings.table);
  const pipeline::Timeline own = picture_of(settings).charts[0].timeline;
  EXPECT_EQ(own.workers[0].size(), 12U);
  EXPECT_EQ(own.end, added.end);
}

TEST(PipelinePicture, WrapsATableAtItsColumns) {
  const pipeline::Table table = pipeline::gpipe(1, 2);
  EXPECT_THAT(wrapped_table(table, 15), ElementsAre("0F0,0F1,0B0,0B1"));
  EXPECT_THAT(wrapped_table(table, 14), ElementsAre("0F0,0F1,0B0,", "    0B1"));
  EXPECT_THAT(wrapped_table(table, 8), ElementsAre("0F0,0F1,", "    0B0,", "    0B1"));
  EXPECT_THAT(wrapped_table(table, 1), ElementsAre("0F0,", "    0F1,", "    0B0,", "    0B1"));
}

TEST(PipelinePicture, SaysWhatTheExecutorCosts) {
  const PipelinePicture picture = picture_of_measured_step();
  const auto json = nlohmann::json::parse(picture_json(picture));
  EXPECT_NEAR(json["step_ms"].get<double>(), 12.5, 1e-9);
  EXPECT_NEAR(json["executor_ms"].get<double>(), 0.5, 1e-9);
  EXPECT_NEAR(json["executor_share"].get<double>(), 0.04, 1e-9);
  EXPECT_NEAR(json["over_replay_ms"].get<double>(), 10 - 7, 1e-9);
  EXPECT_FALSE(json.contains("wait_us"));
  EXPECT_THAT(pipeline_text(picture, 80),
              HasSubstr("\n  0.500 ms  the same table with stages that do nothing: 4.00% of a step "
                        "of 12.500 ms\n  3.000 ms  what the measured step took longer"));
  EXPECT_THAT(pipeline_svg(picture), HasSubstr("takes 0.500 ms, 4.00% of a step"));

  // A replay executes nothing.
  const PipelinePicture paper = picture_of_schedule("gpipe", 2, 1);
  EXPECT_FALSE(nlohmann::json::parse(picture_json(paper)).contains("executor_ms"));
  EXPECT_THAT(pipeline_text(paper, 80), Not(HasSubstr("executor")));
  EXPECT_THAT(pipeline_svg(paper), Not(HasSubstr("Executor")));
}

TEST(PipelinePicture, LabelsStagesThatWait) {
  ExplainPipelineSettings settings = resolve(ExplainPipelineArguments{
      .schedule = "gpipe", .stages = 2, .micro_batches = 1, .measured = true, .wait = 2000});
  bench::PipelineMeasurement measured = measured_step();
  measured.worker_bytes = measured.stage_bytes = {};
  measured.waiting = bench::WaitingStages{.asked_microseconds = 2000, .mean_microseconds = 2003.5};
  const PipelinePicture picture = picture_of(settings, measured);
  const std::string text = pipeline_text(picture, 80);
  EXPECT_THAT(text, HasSubstr("measured: the step that took the median time; stages wait instead "
                              "of computing\n"));
  EXPECT_THAT(text, HasSubstr("2000 us; a wait took 2003.5 us on average."));
  EXPECT_THAT(text, Not(HasSubstr("shared 1")));  // waits need no processor
  EXPECT_THAT(text, Not(HasSubstr("memory")));
  EXPECT_THAT(pipeline_svg(picture), HasSubstr("stages wait instead of computing"));
  const auto json = nlohmann::json::parse(picture_json(picture));
  EXPECT_EQ(json["wait_us"], 2000);
  EXPECT_NEAR(json["wait_us_mean"].get<double>(), 2003.5, 1e-9);
  EXPECT_FALSE(json.contains("worker_bytes"));
}

TEST(PipelineText, ShowsAMeasurementWithItsMemory) {
  const std::string text = pipeline_text(picture_of_measured_step(), 33);
  EXPECT_THAT(text, HasSubstr("time, ms     0         5\n"
                              "worker 0     FFFFss..........BBBB\n"
                              "micro-batch  0   0           0\n"
                              "worker 1     ........FFBBBBs.....\n"));
  EXPECT_THAT(text, HasSubstr("holds   memory  waits, measured  waits, replayed\n"));
  EXPECT_THAT(text, HasSubstr("   1 MiB  "));
  EXPECT_THAT(text, HasSubstr(" 512 KiB  "));
  EXPECT_THAT(text, HasSubstr("The workers wanted 2 processors and shared 1"));
}

// With zbv, each worker has two stages.
PipelinePicture picture_of_measured_zbv() {
  const ExplainPipelineSettings settings = resolve(ExplainPipelineArguments{
      .schedule = "zbv", .stages = 4, .micro_batches = 4, .measured = true});
  bench::PipelineMeasurement measured;
  measured.table = with_messages(settings.table);
  measured.timeline = replay(measured.table, pipeline::unit_cost);
  measured.worker_bytes = {3 << 19, 1 << 20};
  measured.stage_bytes = {1 << 20, 3 << 18, 1 << 18, 1 << 19};
  measured.step_seconds = measured.timeline.end;
  return picture_of(settings, measured);
}

TEST(PipelinePicture, NamesTheBytesOfAWorkersStages) {
  const PipelinePicture picture = picture_of_measured_zbv();
  EXPECT_EQ(stage_bytes_text(picture, 0), "1 MiB + 512 KiB");  // stages 0 and 3
  EXPECT_EQ(stage_bytes_text(picture, 1), "768 KiB + 256 KiB");
  const std::string text = pipeline_text(picture, 80);
  EXPECT_THAT(text, HasSubstr("memory      of each stage  "));
  EXPECT_THAT(text, HasSubstr("  1.5 MiB    1 MiB + 512 KiB  "));
  EXPECT_THAT(text, HasSubstr("    1 MiB  768 KiB + 256 KiB  "));
  EXPECT_THAT(text, HasSubstr("\nof each stage: the peak of that stage alone, "));
  const std::string svg = pipeline_svg(picture);
  EXPECT_THAT(svg, HasSubstr(">stages: 1 MiB + 512 KiB</text>"));
  EXPECT_THAT(svg, HasSubstr(">stages: 768 KiB + 256 KiB</text>"));
}

// The bytes of a worker's only stage equal those of the worker.
TEST(PipelinePicture, NamesNoBytesOfASingleStage) {
  const PipelinePicture picture = picture_of_measured_step();
  EXPECT_EQ(stage_bytes_text(picture, 0), "");
  EXPECT_THAT(pipeline_text(picture, 80), Not(HasSubstr("of each stage")));
  EXPECT_THAT(pipeline_svg(picture), Not(HasSubstr(">stages: ")));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::size_t actions_in(const PipelinePicture& picture) {
  std::size_t count = 0;
  for (const PipelineChart& chart : picture.charts) {
    for (const auto& intervals : chart.timeline.workers) count += intervals.size();
  }
  return count;
}

TEST(PipelineSvg, HasABoxForEachAction) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    for (const double message_cost : {0.0, 0.25}) {
      const PipelinePicture picture = picture_of_schedule(schedule, 4, 8, message_cost);
      const std::string drawn = pipeline_svg(picture);
      EXPECT_EQ(occurrences(drawn, "<title>"), actions_in(picture)) << schedule;
      EXPECT_EQ(testing_support::malformed(drawn), "");
    }
  }
  const PipelinePicture measured = picture_of_measured_step();
  const std::string drawn = pipeline_svg(measured);
  EXPECT_EQ(occurrences(drawn, "<title>"), 16U);
  EXPECT_EQ(occurrences(drawn, "class=\"idle\""), 4U + 1U);  // and one in the legend
  EXPECT_EQ(occurrences(drawn, "class=\"bar\""), 4U + 3U);   // bars for memory and for bubbles
  EXPECT_THAT(drawn, HasSubstr("<title>0F0 on worker 0: 0 to 2 ms</title>"));
  EXPECT_EQ(testing_support::malformed(drawn), "");
}

TEST(PipelineSvg, NeedsNothingElse) {
  const std::string drawn = pipeline_svg(picture_of_schedule("zbv", 8, 8));
  EXPECT_TRUE(drawn.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(drawn.ends_with("</svg>\n"));
  EXPECT_THAT(drawn, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(drawn, HasSubstr("paler: a worker's later stages"));
  for (const char* part : {"href", "<script", "<image", "@import", "url("})
    EXPECT_THAT(drawn, Not(HasSubstr(part)));
}

TEST(ExplainPipelineSettings, TakesATableOfTheUsers) {
  const testing_support::TemporaryDirectory folder;
  const auto file = folder / "<mine>.csv";
  write_file_atomically(file, "0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W0,1W1\n");
  const ExplainPipelineSettings settings =
      resolve(ExplainPipelineArguments{.table = file.string()});
  EXPECT_EQ(settings.table.name, "<mine>");
  EXPECT_FALSE(settings.stages_per_worker);
  const PipelinePicture picture = picture_of(settings);
  EXPECT_THAT(picture.peak_activations, ElementsAre(2, 2));
  const std::string drawn = pipeline_svg(picture);
  EXPECT_THAT(drawn, HasSubstr("&lt;mine&gt;: 2 stages"));
  EXPECT_EQ(testing_support::malformed(drawn), "");
}

// Every option has a value of its own, so that none can take the place of another.
TEST(ExplainPipelineSettings, HoldWhatTheOptionsSay) {
  const ExplainPipelineSettings computing =
      resolve(ExplainPipelineArguments{.schedule = "interleaved",
                                       .stages = 6,
                                       .workers = 3,
                                       .micro_batches = 9,
                                       .measured = true,
                                       .activation = "gelu",
                                       .width = 11,
                                       .layers = 12,
                                       .samples = 13,
                                       .threads = 14,
                                       .steps = 15});
  EXPECT_EQ(computing.table.stages(), 6);
  EXPECT_EQ(computing.table.workers.size(), 3U);
  EXPECT_EQ(computing.table.micro_batches, 9);
  EXPECT_EQ(computing.stages_per_worker, 2);
  EXPECT_EQ(computing.message_cost, 0);
  ASSERT_TRUE(computing.toys);
  EXPECT_EQ(computing.toys->wait_microseconds, 0);
  EXPECT_EQ(computing.toys->activation, "gelu");
  EXPECT_EQ(computing.toys->width, 11);
  EXPECT_EQ(computing.toys->layers, 12);
  EXPECT_EQ(computing.toys->samples, 13);
  EXPECT_EQ(computing.toys->threads, 14);
  EXPECT_EQ(computing.toys->steps, 15);
  const auto waiting =
      resolve(ExplainPipelineArguments{.measured = true, .wait = 16, .steps = 17}).toys;
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->wait_microseconds, 16);
  EXPECT_EQ(waiting->steps, 17);
  const testing_support::TemporaryDirectory folder;
  const ExplainPipelineSettings files =
      resolve(ExplainPipelineArguments{.message_cost = 0.5,
                                       .svg = (folder / "a.svg").string(),
                                       .csv = (folder / "a.csv").string(),
                                       .json = (folder / "a.json").string()});
  EXPECT_FALSE(files.toys);
  EXPECT_EQ(files.message_cost, 0.5);
  EXPECT_EQ(files.svg, folder / "a.svg");
  EXPECT_EQ(files.csv, folder / "a.csv");
  EXPECT_EQ(files.json, folder / "a.json");
}

TEST(ExplainPipelineSettings, HaveDefaults) {
  const ExplainPipelineSettings usual = resolve(ExplainPipelineArguments{});
  EXPECT_EQ(usual.table.name, "1f1b");
  EXPECT_EQ(usual.table.stages(), 4);
  EXPECT_EQ(usual.table.workers.size(), 4U);
  EXPECT_EQ(usual.table.micro_batches, 8);
  EXPECT_EQ(usual.stages_per_worker, 1);
  EXPECT_EQ(usual.message_cost, 0);
  EXPECT_FALSE(usual.toys);
  EXPECT_TRUE(usual.svg.empty() && usual.csv.empty() && usual.json.empty());
  const auto workers_of = [](const char* schedule, int stages) {
    return resolve(ExplainPipelineArguments{.schedule = schedule, .stages = stages})
        .table.workers.size();
  };
  EXPECT_EQ(workers_of("interleaved", 1), 1U);
  EXPECT_EQ(workers_of("interleaved", 6), 3U);
  EXPECT_EQ(workers_of("zbv", 6), 3U);
  EXPECT_EQ(workers_of("zb-h1", 6), 6U);
  const auto toys = resolve(ExplainPipelineArguments{.measured = true}).toys;
  ASSERT_TRUE(toys);
  EXPECT_EQ(toys->wait_microseconds, 0);
  EXPECT_EQ(toys->activation, "relu");
  EXPECT_EQ(toys->width, 512);
  EXPECT_EQ(toys->layers, 2);
  EXPECT_EQ(toys->samples, 64);
  EXPECT_EQ(toys->threads, 1);
  EXPECT_EQ(toys->steps, 21);
}

TEST(ExplainPipelineSettings, TakeTheEndsOfTheirRanges) {
  const ExplainPipelineArguments cases[] = {
      {.stages = 64, .workers = 64, .micro_batches = 1},
      {.stages = 1, .workers = 1, .micro_batches = 1000},
      {.message_cost = 1000},
      {.measured = true, .wait = 1},
      {.measured = true, .wait = 1000000, .steps = 1},
      {.measured = true, .width = 1, .layers = 1, .samples = 1, .threads = 1},
      {.measured = true,
       .activation = "relu",
       .width = 16384,
       .layers = 1000,
       .samples = 1000000,
       .threads = 1024,
       .steps = 1000000}};
  for (const ExplainPipelineArguments& each : cases) {
    EXPECT_EQ(message_of<ConfigError>([&] { resolve(each); }), "nothing was thrown");
  }
}

// The limits of a picture also hold for a table from a file.
TEST(ExplainPipelineSettings, LimitTheTableOfAFile) {
  const testing_support::TemporaryDirectory folder;
  const auto file = folder / "mine.csv";
  const auto refusal = [&](int stages, int micro_batches) {
    std::string text;
    for (int stage = 0; stage < stages; ++stage) {
      for (const char* kind : {"F", "B"}) {
        for (int i = 0; i < micro_batches; ++i) {
          text += str(text.empty() || text.back() == '\n' ? "" : ",", stage, kind, i);
        }
      }
      text += '\n';
    }
    write_file_atomically(file, text);
    return message_of<ConfigError>(
        [&] { resolve(ExplainPipelineArguments{.table = file.string()}); });
  };
  const std::string where = "explain pipeline: --table " + file.string() + ": ";
  EXPECT_EQ(refusal(64, 1), "nothing was thrown");
  EXPECT_EQ(refusal(65, 1), where + "the number of stages must be from 1 to 64, got 65");
  EXPECT_EQ(refusal(1, 1000), "nothing was thrown");
  EXPECT_EQ(refusal(1, 1001),
            where + "the number of micro-batches must be from 1 to 1000, got 1001");
}

TEST(ExplainPipelineSettings, SaysWhichOptionsCannotBe) {
  struct Case {
    ExplainPipelineArguments arguments;
    const char* message;
  };
  const char* const excluded_by_table =
      "cannot be combined with --table, which contains their values";
  const char* const excluded_by_wait = "with --wait stages compute nothing";
  const Case cases[] = {
      {{.schedule = "zbh1"}, "explain pipeline: --schedule must be one of gpipe, "},
      {{.stages = 0}, "--stages must be from 1 to 64, got 0"},
      {{.stages = 65}, "--stages must be from 1 to 64, got 65"},
      {{.stages = 4, .workers = 3}, "1f1b has one stage on each worker, got --stages 4 and 3"},
      {{.schedule = "zbv", .stages = 5}, "zbv has two stages on each worker"},
      {{.schedule = "zbv", .stages = 1}, "got --stages 1 and 1 worker"},
      {{.schedule = "interleaved", .stages = 5, .workers = 2}, "equally many stages on each"},
      {{.schedule = "zbv", .stages = 4, .workers = 4},
       "zbv has two stages on each worker, got --stages 4 and 4 workers"},
      {{.schedule = "gpipe", .stages = 4, .workers = 2}, "gpipe has one stage on each worker"},
      {{.workers = 65}, "--workers must be from 1 to 64, got 65"},
      {{.workers = 0}, "--workers must be from 1 to 64, got 0"},
      {{.micro_batches = 0}, "--micro-batches must be from 1"},
      {{.micro_batches = 1001}, "--micro-batches must be from 1 to 1000, got 1001"},
      {{.schedule = "1f1b", .table = "x.csv"}, excluded_by_table},
      {{.stages = 4, .table = "x.csv"}, excluded_by_table},
      {{.workers = 4, .table = "x.csv"}, excluded_by_table},
      {{.micro_batches = 4, .table = "x.csv"}, excluded_by_table},
      {{.wait = 100}, "belong to --measured"},
      {{.activation = "relu"}, "belong to --measured"},
      {{.width = 4}, "belong to --measured"},
      {{.layers = 4}, "belong to --measured"},
      {{.samples = 4}, "belong to --measured"},
      {{.threads = 4}, "belong to --measured"},
      {{.steps = 4}, "belong to --measured"},
      {{.measured = true, .wait = 0}, "--wait must be from 1"},
      {{.measured = true, .wait = 5, .activation = "relu"}, excluded_by_wait},
      {{.measured = true, .wait = 5, .width = 4}, excluded_by_wait},
      {{.measured = true, .wait = 5, .layers = 4}, excluded_by_wait},
      {{.measured = true, .wait = 5, .samples = 4}, excluded_by_wait},
      {{.measured = true, .wait = 5, .threads = 4}, excluded_by_wait},
      {{.measured = true, .width = 0}, "--width must be from 1"},
      {{.measured = true, .layers = 0}, "--layers must be from 1"},
      {{.measured = true, .samples = 0}, "--samples must be from 1"},
      {{.measured = true, .threads = 0}, "--threads must be from 1"},
      {{.measured = true, .wait = 1000001}, "--wait must be from 1 to 1000000, got 1000001"},
      {{.measured = true, .width = 16385}, "--width must be from 1 to 16384, got 16385"},
      {{.measured = true, .layers = 1001}, "--layers must be from 1 to 1000, got 1001"},
      {{.measured = true, .samples = 1000001}, "--samples must be from 1 to 1000000, got 1000001"},
      {{.measured = true, .threads = 1025}, "--threads must be from 1 to 1024, got 1025"},
      {{.measured = true, .steps = 1000001}, "--steps must be from 1 to 1000000, got 1000001"},
      {{.message_cost = 1000.5}, "--message-cost must be from 0 to 1000, got 1000.5"},
      {{.measured = true, .activation = "tanh"}, "--activation must be one of relu, gelu"},
      {{.message_cost = 1.0, .measured = true}, "remove --message-cost"},
      {{.message_cost = 0.0, .measured = true}, "remove --message-cost"},
      {{.message_cost = -1.0}, "--message-cost must be from 0"},
      {{.measured = true, .steps = 0}, "--steps must be from 1"},
      {{.svg = "/nowhere/at/all.svg"}, "--svg: the folder /nowhere/at does not exist"},
      {{.csv = "/nowhere/at/all.csv"}, "--csv: the folder /nowhere/at does not exist"},
      {{.json = "/nowhere/at/all.json"}, "--json: the folder /nowhere/at does not exist"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { resolve(each.arguments); }), HasSubstr(each.message));
  }
  EXPECT_THROW(resolve(ExplainPipelineArguments{.table = "no-such-file.csv"}), DataError);
}

}  // namespace
}  // namespace lockstep::cli
