#include <lockstep/report/text.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <tests/report/sample_run.h>

namespace lockstep::report {
namespace {

using testing_support::sample_epoch;
using testing_support::sample_info;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Text, GroupsThousands) {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},
      {999, "999"},
      {1000, "1,000"},
      {25974.3, "25,974"},
      {1234567, "1,234,567"},
      {-123, "-123"},
      {-1234, "-1,234"},
      {-123456, "-123,456"},
      {-1234567, "-1,234,567"},
      {999.6, "1,000"},
      {16777217, "16,777,217"},
      {4294967297, "4,294,967,297"},
      {9007199254740991, "9,007,199,254,740,991"},
      {std::numeric_limits<double>::infinity(), "inf"},
      {-std::numeric_limits<double>::infinity(), "-inf"},
      {kNan, "nan"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(count_text(value), text);
}

// On many processors 0 / 0 has the sign bit set.
TEST(Text, ShowsNanWithoutASign) {
  for (const double sign : {1.0, -1.0}) EXPECT_EQ(fixed_text(std::copysign(kNan, sign), 4), "nan");
  EXPECT_EQ(fixed_text(-std::numeric_limits<double>::infinity(), 4), "-inf");
}

// The largest double has 309 digits before the point.
TEST(Text, ShowsTheLargestNumbersWhole) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  for (const double sign : {1.0, -1.0}) {
    const std::string text = fixed_text(sign * kLargest, 4);
    EXPECT_EQ(text.size(), (sign < 0 ? 1U : 0U) + 309 + 5);
    EXPECT_TRUE(text.ends_with(".0000")) << text;
    EXPECT_EQ(count_text(sign * kLargest).size(), (sign < 0 ? 1U : 0U) + 309 + 102);
  }
}

TEST(Text, ShowsDurations) {
  const std::pair<double, const char*> cases[] = {
      {0, "0.00 s"},         {2.314, "2.31 s"},   {9.994, "9.99 s"}, {9.996, "10.0 s"},
      {99.94, "99.9 s"},     {99.96, "1:40 min"}, {205, "3:25 min"}, {3599.4, "59:59 min"},
      {3599.6, "1:00:00 h"}, {7405, "2:03:25 h"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(seconds_text(value), text);
  EXPECT_EQ(clock_text(3), "0:03");
  EXPECT_EQ(clock_text(59.4), "0:59");
  EXPECT_EQ(clock_text(59.5), "1:00");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(3600), "1:00:00");
  EXPECT_EQ(clock_text(3661), "1:01:01");
  EXPECT_EQ(clock_text(100 * 3600 + 59), "100:00:59");
  EXPECT_EQ(clock_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(clock_text(-1), "0:00");
  EXPECT_EQ(clock_text(kNan), "?");
}

TEST(Text, HasThreeSignificantDigits) {
  const std::pair<double, const char*> cases[] = {{0, "0"},
                                                  {310, "310"},
                                                  {269.565, "270"},
                                                  {10.2, "10.2"},
                                                  {9.996, "10.0"},
                                                  {9.994, "9.99"},
                                                  {999.6, "1000"},
                                                  {1234.5, "1230"},
                                                  {12345678, "12300000"},
                                                  {0.012345, "0.0123"},
                                                  {0.1, "0.100"},
                                                  {0.0000123, "0.000012"},
                                                  {1e-7, "0"},
                                                  {-2.346, "-2.35"},
                                                  {kNan, "nan"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(significant_text(value), text) << value;
  EXPECT_EQ(significant_text(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Text, CountsInTheSingularAndThePlural) {
  EXPECT_EQ(count_of(1, "image"), "1 image");
  EXPECT_EQ(count_of(0, "image"), "0 images");
  EXPECT_EQ(count_of(25974, "image"), "25,974 images");
  EXPECT_EQ(count_of(2, "class"), "2 classes");
}

TEST(Text, ShowsSizes) {
  const std::pair<double, const char*> cases[] = {
      {0, "0 B"},          {999, "999 B"},         {1000, "1.0 kB"},     {9912422, "9.9 MB"},
      {999.4, "999 B"},    {999.6, "1.0 kB"},      {99.94e3, "99.9 kB"}, {999.4e3, "999 kB"},
      {999.6e3, "1.0 MB"}, {4294967296, "4.3 GB"}, {1.5e12, "1.5 TB"},   {312.4e6, "312 MB"},
      {99.96e6, "100 MB"}, {999.9e6, "1.0 GB"},    {5e15, "5000 TB"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(bytes_text(value), text);
}

TEST(Text, DescribesARun) {
  EXPECT_EQ(run_line(sample_info()),
            "mnist: ddp over shm, 2 processes x 1 thread, global batch 128, float32, 21,840 "
            "parameters, MNIST");
  RunInfo info = sample_info();
  info.accumulate_grad_batches = 2;
  EXPECT_THAT(run_line(info), testing::HasSubstr("global batch 128 x 2 = 256, float32"));
  info.learning_rate = 0.05;
  EXPECT_THAT(run_line(info), testing::HasSubstr("x 2 = 256, learning rate 0.05, float32"));
  info = sample_info();
  info.strategy = "dp";
  info.world_size = 1;
  info.devices = 2;
  info.dp_loss = "gathered";
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: dp with 2 replicas, 1 process"));
  info.device_weights = {3, 0.5};
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: dp with 2 replicas (weights 3, 0.5), "));
  info = sample_info();
  info.strategy = "hybrid";
  info.stages = 2;
  info.micro_batches = 4;
  info.schedule = "zb-h1";
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: hybrid of 2 stages (zb-h1, 4 "
                                                  "micro-batches) over shm, 2 processes"));
  info.recompute = true;
  EXPECT_THAT(run_line(info), testing::HasSubstr("(zb-h1, 4 micro-batches, recompute) over shm"));
  info.world_size = 4;
  info.workers = 2;
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: hybrid of 2 pipelines of 2 stages (zb-"));
  info.strategy = "pipeline";
  info.stages = 4;
  info.schedule = "zbv";
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: pipeline of 4 stages on 2 workers (zbv"));
  info.workers = 4;
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: pipeline of 4 stages (zbv, 4 micro-"))
      << "a worker for each stage";
  info.workers = info.stages = info.micro_batches = 1;
  EXPECT_THAT(run_line(info),
              testing::StartsWith("mnist: pipeline of 1 stage (zbv, 1 micro-batch, "));
  info.strategy = "hybrid";
  info.workers = info.stages = 4;
  EXPECT_THAT(run_line(info), testing::StartsWith("mnist: hybrid of 1 pipeline of 4 stages (zbv"));
  info = sample_info();
  info.strategy = "single";
  info.world_size = 1;
  info.threads_per_rank = 2;
  info.device = "cuda";
  info.precision = "bf16";
  info.dataset = "";
  EXPECT_EQ(
      run_line(info),
      "mnist: single, 1 process x 2 threads on cuda, global batch 128, bf16, 21,840 parameters");
}

TEST(Text, NamesThePrecisionOfARun) {
  RunInfo info = sample_info();
  for (const auto& [precision, name] :
       {std::pair("32", "float32"), std::pair("16", "float16"), std::pair("bf16", "bf16")}) {
    info.precision = precision;
    EXPECT_THAT(run_line(info), testing::HasSubstr(std::string(", ") + name + ", 21,840 par"));
  }
}

TEST(Text, SaysThatThePrecisionDisablesTheFusedKernels) {
  RunInfo info = sample_info();
  info.precision = "bf16";
  info.fused_kernels = false;
  EXPECT_THAT(run_line(info), testing::HasSubstr(", bf16, 21,840 parameters"));
  info.precision_disables_kernels = true;
  EXPECT_THAT(run_line(info), testing::HasSubstr(", bf16 (no fused kernels), 21,840 parameters"));
}

TEST(Text, SaysWhereAPipelineIsCut) {
  RunInfo info = sample_info();
  EXPECT_EQ(run_heading(info), run_line(info) + "\n");
  info.stages = 3;
  info.cuts = {"conv1", "conv2"};
  EXPECT_EQ(run_heading(info), run_line(info) + "\ncut after conv1, conv2\n");
  info.whole_backward = {1};
  EXPECT_THAT(run_heading(info),
              testing::EndsWith("\ncut after conv1, conv2; stage 1 computes its backward as a "
                                "whole\n"));
  info.whole_backward = {0, 1};
  EXPECT_THAT(run_heading(info),
              testing::EndsWith("; stages 0, 1 compute their backward as a whole\n"));
}

TEST(Text, SaysWhereARunGoesOn) {
  RunInfo info = sample_info();
  info.resumed_from = "run/checkpoints/step-00000938";
  info.first_epoch = 3;
  EXPECT_EQ(run_heading(info),
            run_line(info) + "\nresumes from run/checkpoints/step-00000938 at epoch 3\n");
  info.first_step = 8;
  EXPECT_EQ(run_heading(info), run_line(info) +
                                   "\nresumes from run/checkpoints/step-00000938 in epoch 3, after "
                                   "step 8 of 469\n");
}

TEST(Text, DescribesWhateverAnEvaluationHas) {
  Evaluation all = testing_support::sample_evaluation();
  all.values.push_back({.name = "psnr", .value = 31.25});
  all.values.push_back({.name = "mse", .value = 1.25e-6});
  EXPECT_EQ(evaluation_text(all), "98.42% (loss 0.0512, psnr 31.2500, mse 1.25e-06)");
  all.values.erase(all.values.begin());
  EXPECT_EQ(evaluation_text(all), "loss 0.0512, psnr 31.2500, mse 1.25e-06");
  all.has_loss = false;
  EXPECT_EQ(evaluation_text(all), "psnr 31.2500, mse 1.25e-06");
  all.values = {{.name = "accuracy", .value = kNan, .unit = MetricUnit::kFraction}};
  EXPECT_EQ(evaluation_text(all), "nan%");
  EXPECT_EQ(evaluation_text({.has_loss = false}), "nothing");
  EXPECT_EQ(evaluation_line({.epoch = 3,
                             .step = 40,
                             .steps_per_epoch = 469,
                             .test = testing_support::sample_evaluation()},
                            10),
            "epoch  3/10  step 40 of 469  validation 98.42% (loss 0.0512)");
}

TEST(Text, DescribesAnEpoch) {
  EXPECT_EQ(epoch_line(sample_epoch(3), 10),
            "epoch  3/10  loss 0.0833  validation 98.42% (loss 0.0512)  30,000 img/s  2.00 s");
  EpochReport untested = sample_epoch(10);
  untested.test.reset();
  untested.train_loss = kNan;
  EXPECT_EQ(epoch_line(untested, 10), "epoch 10/10  loss nan  30,000 img/s  2.00 s");
}

TEST(Text, ShowsMetricsOfAnySize) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<double, const char*> cases[] = {
      {0, "0.0000"},      {1e-3, "0.0010"},    {0.000999, "0.000999"}, {999'999.5, "999999.5000"},
      {1e6, "1e+06"},     {-2e6, "-2e+06"},    {-0.5, "-0.5000"},      {kNan, "nan"},
      {kInfinity, "inf"}, {-kInfinity, "-inf"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(metric_text({.value = value}), text);
  EXPECT_EQ(metric_text({.value = 1e-5, .unit = MetricUnit::kFraction}), "0.00%");
}

TEST(Text, PadsCellsToTheSideOfTheirWidth) {
  const std::string cells[] = {"ab", "cd", "too long"};
  const int widths[] = {-4, 4, 3};
  EXPECT_EQ(padded_cells(cells, widths), "ab      cd  too long");
}

}  // namespace
}  // namespace lockstep::report
