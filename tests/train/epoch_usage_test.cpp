// How the processors and GPUs of several ranks are summed up, and the clock of an epoch.
#include <lockstep/train/measuring/epoch_usage.h>

#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/train/strategies/pipeline_phases.h>
#include <tests/support/groups.h>

namespace lockstep::train {
namespace {

using testing_support::no_errors;
using testing_support::run_group;

// Each kind of action takes another power of two of seconds.
TEST(PipelinePhases, AreTheMeanOverTheWorkersOfTheirActions) {
  using pipeline::Kind;
  const Kind kinds[] = {Kind::kForward,        Kind::kBackward,        Kind::kBackwardInput,
                        Kind::kBackwardWeight, Kind::kSendForward,     Kind::kReceiveForward,
                        Kind::kSendBackward,   Kind::kReceiveBackward, Kind::kReduce};
  pipeline::Timeline timeline;
  timeline.workers.resize(2);
  double seconds = 1;
  for (const Kind kind : kinds) {
    pipeline::Interval interval{.begin = 5, .end = 5 + seconds};
    interval.action.kind = kind;
    timeline.workers[kind == Kind::kForward || kind == Kind::kReduce ? 0 : 1].push_back(interval);
    seconds *= 2;
  }
  for (const int workers : {1, 2}) {
    PhaseSeconds phases;
    phases.forward = 1000;
    add_phases(timeline, workers, phases);
    EXPECT_EQ(phases.forward, 1000 + 1.0 / workers);
    EXPECT_EQ(phases.backward, (2.0 + 4 + 8) / workers);
    EXPECT_EQ(phases.communication, (16.0 + 32 + 64 + 128 + 256) / workers);
    EXPECT_EQ(phases.stage_waits, (32.0 + 128) / workers);
    EXPECT_EQ(phases.data, 0);
    EXPECT_EQ(phases.optimizer, 0);
  }
}

TEST(EpochUsage, IsTheMeanOverTheRanks) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const double rank = group.rank();
    EpochReport report;
    report.seconds = 4;
    set_usage({.computed = 1 + 2 * rank, .waited = 0.5 + rank, .busy = 1 + rank},
              GpuUsage{.utilisation = 0.25 + 0.5 * rank,
                       .memory_utilisation = 0.125 + 0.25 * rank,
                       .memory_bytes = 100 + 201 * group.rank(),
                       .power_watts = 300 - 100 * rank},
              group, torch::kCPU, report);
    LOCKSTEP_CHECK(report.processor_seconds == 2, report.processor_seconds);
    LOCKSTEP_CHECK(report.processor_wait_seconds == 1.0, "another wait");
    LOCKSTEP_CHECK(report.busy_processors == 1.5 / 4, "another share");
    LOCKSTEP_CHECK(report.gpu.has_value(), "no GPU");
    LOCKSTEP_CHECK(report.gpu->utilisation == 0.5, report.gpu->utilisation);
    LOCKSTEP_CHECK(report.gpu->memory_utilisation == 0.25, report.gpu->memory_utilisation);
    LOCKSTEP_CHECK(report.gpu->memory_bytes == 201, report.gpu->memory_bytes);
    LOCKSTEP_CHECK(report.gpu->power_watts == 250, report.gpu->power_watts);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(EpochUsage, IsThatOfTheRanksThatKnowTheirs) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    EpochReport report;
    report.seconds = 1;
    const double nan = std::nan("");
    const bool knows = group.rank() == 1;
    std::optional<GpuUsage> usage;
    if (knows) usage = GpuUsage{.utilisation = 0.75, .memory_bytes = 7};
    set_usage({.computed = 2, .waited = knows ? 3 : nan, .busy = knows ? 0.5 : nan}, usage, group,
              torch::kCPU, report);
    LOCKSTEP_CHECK(report.processor_wait_seconds == 3.0, "another wait");
    LOCKSTEP_CHECK(report.busy_processors == 0.5, "another share");
    LOCKSTEP_CHECK(report.gpu && report.gpu->utilisation == 0.75 && report.gpu->memory_bytes == 7,
                   "another GPU");
    EpochReport unknown;
    unknown.seconds = 1;
    set_usage({.computed = 2, .waited = nan, .busy = nan}, std::nullopt, group, torch::kCPU,
              unknown);
    LOCKSTEP_CHECK(unknown.processor_seconds == 2, unknown.processor_seconds);
    LOCKSTEP_CHECK(!unknown.processor_wait_seconds && !unknown.busy_processors && !unknown.gpu,
                   "a value of which no rank knows");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Each pause computes for five milliseconds. What lies outside of the pauses is an upper limit.
TEST(EpochClock, LeavesOutItsPauses) {
  constexpr double kSeconds = 5e-3;
  double paused = 0, computed_in_pauses = 0;
  const Clock::time_point before = Clock::now();
  const double computed_before = processor_seconds();
  EpochClock clock;
  for (int i = 0; i < 3; ++i) {
    const EpochClock::Pause pause(clock);
    const Clock::time_point begin = Clock::now();
    const double computed_at_begin = processor_seconds();
    while (processor_seconds() - computed_at_begin < kSeconds) continue;
    computed_in_pauses += processor_seconds() - computed_at_begin;
    paused += seconds_since(begin);
  }
  const double seconds = clock.seconds();
  const double computed = clock.used().computed;
  constexpr double kResolution = 1e-4;
  EXPECT_GE(seconds, 0);
  EXPECT_LE(seconds, seconds_since(before) - paused + kResolution);
  EXPECT_LE(computed, processor_seconds() - computed_before - computed_in_pauses + kResolution);
  clock.start();
  EXPECT_GE(clock.seconds(), 0) << "the pauses are those of the time before";
}

}  // namespace
}  // namespace lockstep::train
