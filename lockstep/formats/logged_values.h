// The vocabulary of experiment logs: what the loggers of report/loggers/ are given and the formats
// of TensorBoard and W&B write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// When something was logged.
struct LogMoment {
  std::int64_t step = 0;  ///< optimizer steps since the run began, over all epochs
  double time = 0;        ///< seconds since 1970
};

/// Now, at an optimizer step.
LogMoment moment_at(std::int64_t step);

/// "train/loss" and its value, which need not be finite. The name must outlive the call only.
struct NamedValue {
  std::string_view name{};
  double value = 0;
};

/// What a run was told: "lr" = 0.1, "strategy" = "ddp".
struct HyperParameter {
  std::string name{};
  std::variant<bool, std::int64_t, double, std::string> value{};
};

/// How often values lie between edges[i] and edges[i + 1]. `edges` has one number more than
/// `counts` and ascends.
struct Histogram {
  std::vector<double> edges{};
  std::vector<double> counts{};
  double sum = 0;             ///< of the values
  double sum_of_squares = 0;  ///< of the values
};

/// A histogram of `bins` equal bins from the least value to the greatest; values that are not
/// finite are left out. Empty, without bins, where no value is finite. ConfigError when `bins` is
/// below 1.
Histogram make_histogram(std::span<const float> values, int bins = 64);
Histogram make_histogram(std::span<const double> values, int bins = 64);

/// height * width pixels, RGB, row by row, which must outlive the call only.
struct LoggedImage {
  std::span<const std::uint8_t> rgb{};
  int width = 0;
  int height = 0;
};

/// Rows of numbers, such as a confusion matrix. What the spans show must outlive the call only.
struct LoggedTable {
  std::span<const std::string> labels{};        ///< of rows and columns alike; may be too few
  std::span<const std::vector<double>> rows{};  ///< may differ in length

  /// What stands before row `i` and above column `i`: its label, or its number where it has none.
  std::string label(std::size_t i) const;
  std::size_t width() const;  ///< the length of the longest row
};

/// How a format spells the numbers that are not finite.
struct NumberWords {
  std::string_view not_a_number{};
  std::string_view infinity{};
  std::string_view minus_infinity{};
};

/// Appends the shortest text that gives `value` back, or one of `words`.
void append_number(std::string& to, double value, const NumberWords& words);

/// Appends `numbers` as a list of JSON: "[0.5,1]".
void append_numbers(std::string& to, std::span<const double> numbers, const NumberWords& words);

/// Appends `seconds` with three decimals and a point, in every locale of the program.
void append_seconds(std::string& to, double seconds);

/// JSON has no word for such numbers.
inline constexpr NumberWords kJsonNumberWords{"null", "null", "null"};

/// The value of `parameter` as JSON.
std::string json_value(const HyperParameter& parameter);
/// {"labels":["cat","dog"],"rows":[[7,1],[2,9]]}, with null for numbers that are not finite.
std::string json_value(const LoggedTable& table);
/// `text` as a JSON string, in quotes; bytes that are no UTF-8 are replaced.
std::string json_string(std::string_view text);

/// `text` where it is UTF-8. Otherwise `replaced`, which becomes `text` with other bytes replaced:
/// readers of protobuf messages refuse them, and with them the rest of the file.
std::string_view as_utf8(std::string_view text, std::string& replaced);

/// Whether `letter` is one of the 62 letters and digits of ASCII, in every locale of the program.
constexpr bool is_ascii_alphanumeric(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= 'a' && letter <= 'z');
}

}  // namespace lockstep
