#include <lockstep/bench/collectives/beside_computing.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/measuring/quantile.h>

namespace lockstep::bench {
namespace {

constexpr double kPortionSeconds = 20e-6;
constexpr int kTimedPortions = 48;

// A chain of multiplications and additions, each of which depends on the previous one. The compiler
// does not know its initial value.
double arithmetic(std::int64_t links) {
  volatile double seed = 0.5;
  double value = seed;
  for (std::int64_t i = 0; i < links; ++i) value = value * 0.999 + 0.002;
  return value;
}

double seconds_of_portion(std::int64_t links) {
  const auto start = Clock::now();
  volatile double keep = arithmetic(links);
  (void)keep;
  return seconds_since(start);
}

// The number of links in about one portion, determined once.
std::int64_t links_of_portion() {
  static const std::int64_t links = [] {
    constexpr std::int64_t kMany = 20'000;
    double fastest = seconds_of_portion(kMany);
    for (int i = 0; i < kTimedPortions; ++i) fastest = std::min(fastest, seconds_of_portion(kMany));
    return std::max<std::int64_t>(1, std::llround(kMany * kPortionSeconds / fastest));
  }();
  return links;
}

}  // namespace

BesideTimes compute_beside(const std::function<void()>& ready,
                           const std::function<WorkPtr()>& start) {
  const std::int64_t links = links_of_portion();
  std::vector<double> portions;
  for (int i = 0; i < kTimedPortions; ++i) portions.push_back(seconds_of_portion(links));
  const double portion = median(std::move(portions));
  ready();
  const auto begin = Clock::now();
  const WorkPtr work = start();
  double computed = 0;
  do {
    seconds_of_portion(links);
    computed += portion;
  } while (!work->is_completed());
  const double seconds = seconds_since(begin);
  work->wait();
  return {.until_end_us = 1e6 * seconds, .taken_us = 1e6 * std::max(0.0, seconds - computed)};
}

}  // namespace lockstep::bench
