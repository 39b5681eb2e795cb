#include <lockstep/formats/logged_values.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include <lockstep/core/options.h>
#include <lockstep/formats/utf8.h>

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

void append_number(std::string& to, double value, const NumberWords& words) {
  if (!std::isfinite(value)) {
    to += std::isnan(value) ? words.not_a_number
          : value > 0       ? words.infinity
                            : words.minus_infinity;
    return;
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  to.append(text.data(), end);
}

void append_numbers(std::string& to, std::span<const double> numbers, const NumberWords& words) {
  to += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) to += ',';
    append_number(to, numbers[i], words);
  }
  to += ']';
}

void append_seconds(std::string& to, double seconds) {
  std::array<char, 400> text{};  // the largest double has 309 digits
  const auto end = std::to_chars(text.data(), text.data() + text.size(), seconds,
                                 std::chars_format::fixed, /*precision=*/3)
                       .ptr;
  to.append(text.data(), end);
}

std::string json_value(const HyperParameter& parameter) {
  return std::visit(
      [](const auto& value) {
        return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      },
      parameter.value);
}

std::string json_value(const LoggedTable& table) {
  std::string json = "{\"labels\":[";
  const char* before = "";
  for (const std::string& label : table.labels) {
    json.append(before).append(json_string(label));
    before = ",";
  }
  json += "],\"rows\":[";
  before = "";
  for (const std::vector<double>& row : table.rows) {
    json += before;
    append_numbers(json, row, kJsonNumberWords);
    before = ",";
  }
  return json + "]}";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view as_utf8(std::string_view text, std::string& replaced) {
  if (torch_file::is_utf8(text)) return text;
  replaced = nlohmann::json::parse(json_string(text)).get<std::string>();
  return replaced;
}

}  // namespace lockstep
