#include <lockstep/report/summary_table.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <sstream>
#include <string>

#include <lockstep/report/run_record.h>
#include <tests/report/sample_run.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::report {
namespace {

using testing_support::sample_report;

std::string summary_of(const RunReport& report) {
  std::ostringstream out;
  SummaryTable(out).on_run_end(report);
  return out.str();
}

TEST(SummaryTable, ShowsEpochsPhasesAndTimes) {
  EXPECT_EQ(summary_of(sample_report(2)), R"(
epoch    loss  validation loss  accuracy   img/s  seconds
    1  0.2500           0.0512    98.42%  30,000     2.00
    2  0.1250           0.0512    98.42%  30,000     2.00
time of rank 0: data 5.0%, forward 25.0%, backward 50.0%, communication 10.0%, optimizer 5.0%, other 5.0%
validation accuracy 98.42% of 10,000 images, 3 images could not be read and were skipped, first step after 0.39 s, total 24.1 s, peak memory of rank 0 312 MB
)");
}

TEST(SummaryTable, LeavesOutWhatWasNotTested) {
  RunReport report = sample_report(1);
  report.test.reset();
  report.epochs[0].test.reset();
  EXPECT_EQ(summary_of(report), R"(
epoch    loss   img/s  seconds
    1  0.2500  30,000     2.00
time of rank 0: data 5.0%, forward 25.0%, backward 50.0%, communication 10.0%, optimizer 5.0%, other 5.0%
3 images could not be read and were skipped, first step after 0.39 s, total 24.1 s, peak memory of rank 0 312 MB
)");
}

TEST(SummaryTable, ShowsWhateverTheTaskGives) {
  RunReport report = sample_report(2);
  report.skipped_images = 0;
  report.epochs[1].test = Evaluation{
      .has_loss = false,
      .values = {{.name = "psnr", .value = 31.25},
                 {.name = "top5_accuracy", .value = 0.5, .unit = MetricUnit::kFraction}},
      .tables = {{.name = "confusion", .labels = {"cat", "dog"}, .rows = {{1003, 1}, {0, 2}}}},
      .samples = 6};
  report.epochs[0].test.reset();
  report.test = report.epochs[1].test;
  report.stop_reason = "psnr has not improved";
  EXPECT_EQ(summary_of(report), R"(
epoch    loss     psnr  top5_accuracy   img/s  seconds
    1  0.2500                          30,000     2.00
    2  0.1250  31.2500         50.00%  30,000     2.00
time of rank 0: data 5.0%, forward 25.0%, backward 50.0%, communication 10.0%, optimizer 5.0%, other 5.0%
the run ended early: psnr has not improved
confusion    cat  dog
      cat  1,003    1
      dog      0    2
validation psnr 31.2500, top5_accuracy 50.00% of 6 images, first step after 0.39 s, total 24.1 s, peak memory of rank 0 312 MB
)");
  report.test->tables = {{.name = "shares", .labels = {"cat"}, .rows = {{0.25, 1}, {0, 2}}}};
  EXPECT_THAT(summary_of(report), testing::HasSubstr("\nshares     cat       1\n"
                                                     "   cat  0.2500  1.0000\n"
                                                     "     1  0.0000  2.0000\n"));
  report.test->tables = {{.name = "wide", .rows = {std::vector<double>(21, 1.0)}}};
  EXPECT_THAT(summary_of(report), testing::Not(testing::HasSubstr("wide")));
  report = sample_report(0);
  report.test->values.clear();
  EXPECT_THAT(summary_of(report), testing::HasSubstr("validation loss 0.0512 of 10,000 images"));
}

// Times of different clocks may contradict each other a little.
TEST(SummaryTable, HasNoShareBelowZeroAndNoneOfNothing) {
  RunReport report = sample_report(1);
  report.epochs[0].seconds = 1;
  EXPECT_THAT(summary_of(report),
              testing::HasSubstr("\ntime of rank 0: data 10.0%, forward 50.0%, backward 100.0%, "
                                 "communication 20.0%, optimizer 10.0%, other 0.0%\n"));
  report.epochs[0].seconds = 0;
  EXPECT_THAT(summary_of(report),
              testing::HasSubstr("\ntime of rank 0: data 0.0%, forward 0.0%, backward 0.0%, "
                                 "communication 0.0%, optimizer 0.0%, other 0.0%\n"));
}

TEST(SummaryTable, ShowsTheBestBesideTheLast) {
  RunReport report = sample_report(1);
  report.best =
      BestEvaluation{.name = "accuracy", .value = 0.99, .unit = MetricUnit::kFraction, .epoch = 3};
  EXPECT_THAT(summary_of(report),
              testing::HasSubstr("\nbest validation accuracy 99.00% in epoch 3\n"
                                 "validation accuracy 98.42% of 10,000 images, "));
  report.best->weights = "run/checkpoints/step-00001407/model.safetensors";
  EXPECT_THAT(summary_of(report),
              testing::HasSubstr("\nbest validation accuracy 99.00% in epoch 3, weights in "
                                 "run/checkpoints/step-00001407/model.safetensors\n"));
  report.test.reset();
  report.best = BestEvaluation{.name = "train_loss", .value = 0.125, .epoch = 2};
  EXPECT_THAT(summary_of(report), testing::HasSubstr("\nbest training loss 0.1250 in epoch 2\n"));
}

// The record has the epochs before; the units are those of the last evaluation.
TEST(SummaryTable, ShowsTheWholeOfAResumedRun) {
  const testing_support::TemporaryDirectory folder;
  RunRecord first(folder.path(), {});
  first.on_run_begin(testing_support::sample_info());
  for (int epoch = 1; epoch <= 3; ++epoch) first.on_epoch_end(testing_support::sample_epoch(epoch));
  RunReport report = sample_report(0);
  report.info.first_epoch = 3;
  report.epochs = {testing_support::sample_epoch(3)};
  const auto summary = [&](const std::filesystem::path& place) {
    std::ostringstream out;
    SummaryTable table(out, place);
    table.on_run_begin(report.info);
    table.on_run_end(report);
    return out.str();
  };
  const std::string last = "    3  0.0833           0.0512    98.42%  30,000     2.00\n";
  const std::string earlier =
      "    1  0.2500           0.0512    98.42%  30,000     2.00\n"
      "    2  0.1250           0.0512    98.42%  30,000     2.00\n";
  const std::string titles = "\nepoch    loss  validation loss  accuracy   img/s  seconds\n";
  EXPECT_THAT(summary(folder.path()), testing::HasSubstr(titles + last)) << "it begins anew";
  report.info.resumed_from = "run/checkpoints/step-00000938";
  EXPECT_THAT(summary(folder.path()), testing::HasSubstr(titles + earlier + last));
  EXPECT_THAT(summary({}), testing::HasSubstr(titles + last));
  EXPECT_THAT(summary(folder / "nowhere"), testing::HasSubstr(titles + last));
  report.epochs.clear();
  report.already_complete = true;
  EXPECT_THAT(summary(folder.path()), testing::HasSubstr(titles + earlier + "time of rank 0: "));
}

// Epochs from a record have no units. Some of them may have no evaluation.
TEST(SummaryTable, HasUnitsInEveryEpochThatHasAnEvaluation) {
  RunReport report = sample_report(3);
  report.skipped_images = 1;
  report.epochs[0].test.reset();
  for (const std::size_t recorded : {1U, 2U}) {
    report.epochs[recorded].test->values = {{.name = "accuracy", .value = 0.9842},
                                            {.name = "psnr", .value = 31.25}};
  }
  const std::string text = summary_of(report);
  EXPECT_THAT(text, testing::HasSubstr(R"(
epoch    loss  validation loss  accuracy     psnr   img/s  seconds
    1  0.2500                                      30,000     2.00
    2  0.1250           0.0512    98.42%  31.2500  30,000     2.00
    3  0.0833           0.0512    98.42%  31.2500  30,000     2.00
)"));
  EXPECT_THAT(text, testing::HasSubstr(", 1 image could not be read and was skipped, "));
}

// A run that was interrupted has no last evaluation, but its epochs and its best value have units.
TEST(SummaryTable, HasUnitsWithoutALastEvaluation) {
  RunReport report = sample_report(2);
  report.test.reset();
  report.epochs[0].test->values[0].unit = MetricUnit::kNumber;  // from a record without units
  EXPECT_THAT(summary_of(report), testing::HasSubstr("    1  0.2500           0.0512    98.42%  "));
  report.epochs[1].test.reset();
  report.best = BestEvaluation{
      .name = "accuracy", .value = 0.9842, .unit = MetricUnit::kFraction, .epoch = 1};
  EXPECT_THAT(summary_of(report), testing::HasSubstr("    1  0.2500           0.0512    98.42%  "));
}

TEST(SummaryTable, TellsAPartOfAnEpochFromAWholeOne) {
  RunReport report = sample_report(2);
  for (EpochReport& epoch : report.epochs) epoch.steps_per_epoch = 469;
  EXPECT_THAT(summary_of(report), testing::HasSubstr("   img/s  seconds\n"));
  EXPECT_THAT(summary_of(report), testing::HasSubstr(", total 24.1 s, peak memory"));
  report.epochs[1].steps = 69;
  report.info.resumed_from = "run/checkpoints/step-00000869";
  const std::string text = summary_of(report);
  EXPECT_THAT(text, testing::HasSubstr("   img/s  seconds      steps\n"));
  EXPECT_THAT(text, testing::HasSubstr("  30,000     2.00        469\n"));
  EXPECT_THAT(text, testing::HasSubstr("  30,000     2.00  69 of 469\n"));
  EXPECT_THAT(text, testing::HasSubstr(", total 24.1 s since it was resumed, peak memory"));
}

TEST(SummaryTable, ShowsOneRunAfterAnother) {
  const testing_support::TemporaryDirectory folder;
  RunRecord first(folder.path(), {});
  first.on_run_begin(testing_support::sample_info());
  first.on_epoch_end(testing_support::sample_epoch(1));
  RunReport report = sample_report(0);
  report.epochs = {testing_support::sample_epoch(2)};
  std::ostringstream out;
  SummaryTable table(out, folder.path());
  for (const char* checkpoint : {"run/checkpoints/step-00000469", ""}) {
    report.info.resumed_from = checkpoint;
    report.info.first_epoch = 2;
    out.str("");
    table.on_run_begin(report.info);
    table.on_run_end(report);
    const bool is_resumed = !report.info.resumed_from.empty();
    EXPECT_EQ(out.str().find("\n    1  ") != std::string::npos, is_resumed) << out.str();
    EXPECT_THAT(out.str(), testing::HasSubstr("\n    2  0.1250 "));
  }
}

TEST(SummaryTable, ShowsTablesWhoseRowsDiffer) {
  RunReport report = sample_report(1);
  report.test->tables = {{.name = "uneven", .labels = {"cat"}, .rows = {{1}, {2, 30}, {}}},
                         {.name = "late", .rows = {{1}, std::vector<double>(21, 1.0)}},
                         {.name = "tall", .rows = std::vector<std::vector<double>>(21, {1.0})},
                         {.name = "full", .rows = std::vector<std::vector<double>>(20, {1.0})}};
  const std::string text = summary_of(report);
  EXPECT_THAT(text, testing::HasSubstr("\nuneven  cat   1\n"
                                       "   cat    1\n"
                                       "     1    2  30\n"
                                       "     2\n"));
  EXPECT_THAT(text, testing::HasSubstr("\nfull  0\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("late")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("tall")));
}

TEST(SummaryTable, ShortensLongRuns) {
  const auto lines_of = [](std::int64_t epochs) {
    std::istringstream text(summary_of(sample_report(epochs)));
    std::vector<std::string> first_words;
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (word == "..." || (!word.empty() && std::isdigit(word[0]))) first_words.push_back(word);
    }
    return first_words;
  };
  EXPECT_EQ(lines_of(20).size(), 20U);
  EXPECT_THAT(lines_of(100),
              testing::ElementsAre("1", "2", "3", "4", "5", "...", "87", "88", "89", "90", "91",
                                   "92", "93", "94", "95", "96", "97", "98", "99", "100"));
}

TEST(SummaryTable, SaysThatARunWasComplete) {
  RunReport report = sample_report(0);
  report.already_complete = true;
  report.skipped_images = 0;
  EXPECT_EQ(summary_of(report), R"(
the run is complete: all its steps were done before, so nothing was trained; raise --max-epochs or --max-steps to continue it
validation accuracy 98.42% of 10,000 images, total 24.1 s, peak memory of rank 0 312 MB
)");
}

TEST(SummaryTable, SurvivesARunWithoutEpochs) {
  RunReport report = sample_report(0);
  report.skipped_images = 0;
  report.test.reset();
  EXPECT_EQ(summary_of(report),
            "\nfirst step after 0.39 s, total 24.1 s, peak memory of rank 0 312 MB\n");
}

}  // namespace
}  // namespace lockstep::report
