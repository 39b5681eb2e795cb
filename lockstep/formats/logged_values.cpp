#include <lockstep/formats/logged_values.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include <lockstep/core/options.h>

namespace lockstep {
namespace {

template <class Number>
Histogram histogram_of(std::span<const Number> values, int bins) {
  OptionCheck("make_histogram").at_least("bins", bins, 1);
  double least = 0;
  double greatest = 0;
  bool any = false;
  for (const Number value : values) {
    if (!std::isfinite(value)) continue;
    const auto number = static_cast<double>(value);
    least = any ? std::min(least, number) : number;
    greatest = any ? std::max(greatest, number) : number;
    any = true;
  }
  Histogram histogram;
  if (!any) return histogram;
  const auto bin_width_halved = [&] { return greatest / bins / 2 - least / bins / 2; };
  if (!(bin_width_halved() > 0)) {  // a single value is in the middle of the range
    const double margin = std::max(std::abs(least), 1.0) / 2;
    least -= margin;
    greatest += margin;
  }
  const auto count = static_cast<std::size_t>(bins);
  // Halved, because the difference of two doubles may be infinite.
  const double half_width = bin_width_halved();
  histogram.edges.resize(count + 1);
  histogram.counts.resize(count);
  for (std::size_t i = 1; i < count; ++i) {
    const double half_edge = least / 2 + half_width * static_cast<double>(i);
    histogram.edges[i] = std::clamp(half_edge * 2, least, greatest);
  }
  histogram.edges[0] = least;
  histogram.edges[count] = greatest;
  for (const Number value : values) {
    if (!std::isfinite(value)) continue;
    const auto number = static_cast<double>(value);
    const double place = (number / 2 - least / 2) / half_width;
    const auto bin = static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(bins)));
    histogram.counts[std::min(bin, count - 1)] += 1;
    histogram.sum += number;
    histogram.sum_of_squares += number * number;
  }
  return histogram;
}

}  // namespace

std::string LoggedTable::label(std::size_t i) const {
  return i < labels.size() ? labels[i] : std::to_string(i);
}

std::size_t LoggedTable::width() const {
  std::size_t longest = 0;
  for (const std::vector<double>& row : rows) longest = std::max(longest, row.size());
  return longest;
}

LogMoment moment_at(std::int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.step = step, .time = std::chrono::duration<double>(now).count()};
}

Histogram make_histogram(std::span<const float> values, int bins) {
  return histogram_of(values, bins);
}
Histogram make_histogram(std::span<const double> values, int bins) {
  return histogram_of(values, bins);
}

}  // namespace lockstep
