#include <lockstep/simulate/simulated_step.h>

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::simulate {
namespace {

BucketTransfer free_transfer(double ready, double seconds) {
  return {.ready_seconds = ready,
          .alone_seconds = seconds,
          .beside_seconds = seconds,
          .taken_seconds = 0};
}

TEST(SimulatedBackward, HidesWhatEndsBeforeBackward) {
  const SimulatedBackward backward = simulate_backward(
      1.0, {free_transfer(0.2, 0.3), free_transfer(0.4, 0.2), free_transfer(1.0, 0.1)});
  EXPECT_DOUBLE_EQ(backward.backward_seconds, 1.0);
  EXPECT_NEAR(backward.exposed_seconds, 0.1, 1e-12);
  EXPECT_NEAR(backward.transfers[1].begin, 0.5, 1e-12);  // starts when the first one ends
  EXPECT_NEAR(backward.transfers[1].end, 0.7, 1e-12);
  EXPECT_NEAR(backward.transfers[2].begin, 1.0, 1e-12);
}

TEST(SimulatedBackward, WaitsForAWireThatIsTooSlow) {
  const SimulatedBackward backward =
      simulate_backward(1.0, {free_transfer(0.1, 2), free_transfer(0.9, 3)});
  EXPECT_NEAR(backward.exposed_seconds, 0.1 + 5 - 1, 1e-12);
}

TEST(SimulatedBackward, IsLongerWhereTheProcessorMovesTheData) {
  // The whole transfer occupies the processor.
  const SimulatedBackward own = simulate_backward(
      1.0,
      {{.ready_seconds = 0.5, .alone_seconds = 0.2, .beside_seconds = 0.2, .taken_seconds = 0.2}});
  EXPECT_NEAR(own.backward_seconds, 1.2, 1e-12);
  EXPECT_NEAR(own.exposed_seconds, 0, 1e-12);
  // A quarter of the transfer occupies the processor.
  const SimulatedBackward quarter = simulate_backward(
      1.0,
      {{.ready_seconds = 0.2, .alone_seconds = 0.3, .beside_seconds = 0.4, .taken_seconds = 0.1}});
  EXPECT_NEAR(quarter.backward_seconds, 1.1, 1e-12);
  // After backward has ended, the transfer is faster.
  const SimulatedBackward behind = simulate_backward(
      1.0,
      {{.ready_seconds = 1.0, .alone_seconds = 0.3, .beside_seconds = 0.4, .taken_seconds = 0.1}});
  EXPECT_NEAR(behind.backward_seconds, 1.0, 1e-12);
  EXPECT_NEAR(behind.exposed_seconds, 0.3, 1e-12);
}

TEST(SimulatedBackward, IsItsComputingWithoutBuckets) {
  EXPECT_DOUBLE_EQ(simulate_backward(0.7, {}).backward_seconds, 0.7);
  EXPECT_DOUBLE_EQ(simulate_backward(0.7, {}).exposed_seconds, 0);
}

// A simpler simulation that advances in small time steps.
SimulatedBackward by_small_steps(double compute, const std::vector<BucketTransfer>& transfers,
                                 double step) {
  SimulatedBackward result;
  double time = 0, computed = 0, left = 1;
  std::size_t open = 0;
  while (computed < compute || open < transfers.size()) {
    const bool computes = computed < compute;
    const bool moves = open < transfers.size() && computed >= transfers[open].ready_seconds - 1e-12;
    double speed = 1;
    if (moves) {
      const BucketTransfer& each = transfers[open];
      const double seconds = computes ? each.beside_seconds : each.alone_seconds;
      if (computes) speed = 1 - each.taken_seconds / each.beside_seconds;
      left -= step / seconds;
      if (left <= 0) {
        ++open;
        left = 1;
      }
    }
    if (computes) {
      computed += speed * step;
      result.backward_seconds = time + step;
    }
    time += step;
  }
  result.exposed_seconds = time - result.backward_seconds;
  return result;
}

TEST(SimulatedBackward, IsThatOfSmallSteps) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  for (int trial = 0; trial < 60; ++trial) {
    const double compute = 0.2 + share(random);
    std::vector<double> ready;
    const int buckets = 1 + static_cast<int>(5 * share(random));
    for (int i = 0; i < buckets; ++i) ready.push_back(compute * share(random));
    std::sort(ready.begin(), ready.end());
    std::vector<BucketTransfer> transfers;
    for (const double each : ready) {
      const double alone = 0.01 + 0.4 * share(random);
      const double beside = alone * (1 + share(random));
      transfers.push_back({.ready_seconds = each,
                           .alone_seconds = alone,
                           .beside_seconds = beside,
                           .taken_seconds = 0.95 * beside * share(random)});
    }
    const double step = 2e-5;
    const SimulatedBackward expected = by_small_steps(compute, transfers, step);
    const SimulatedBackward got = simulate_backward(compute, transfers);
    const double tolerance = 100 * step;  // at the slowest speed, a step or two per event
    EXPECT_NEAR(got.backward_seconds, expected.backward_seconds, tolerance) << trial;
    EXPECT_NEAR(got.backward_seconds + got.exposed_seconds,
                expected.backward_seconds + expected.exposed_seconds, tolerance)
        << trial;
  }
}

}  // namespace
}  // namespace lockstep::simulate
