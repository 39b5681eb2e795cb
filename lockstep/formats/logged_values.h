// The values of experiment logs: the inputs of the loggers in report/loggers/, and of the writers
// of TensorBoard and W&B files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// The step and the time of a logged value.
struct LOCKSTEP_API LogMoment {
  std::int64_t step = 0;  ///< optimizer steps since the run began, over all epochs
  double time = 0;        ///< seconds since 1970
};

/// The current time, at an optimizer step.
LOCKSTEP_API LogMoment moment_at(std::int64_t step);

/// A name, such as "train/loss", and its value, which need not be finite. The name need only be
/// valid during the call that receives it.
struct LOCKSTEP_API NamedValue {
  std::string_view name{};
  double value = 0;
};

/// A setting of a run: "lr" = 0.1, "strategy" = "ddp".
struct LOCKSTEP_API HyperParameter {
  std::string name{};
  std::variant<bool, std::int64_t, double, std::string> value{};
};

/// counts[i] is the number of values between edges[i] and edges[i + 1]. `edges` ascends and has one
/// more element than `counts`.
struct LOCKSTEP_API Histogram {
  std::vector<double> edges{};
  std::vector<double> counts{};
  double sum = 0;             ///< of the values
  double sum_of_squares = 0;  ///< of the values
};

/// A histogram of `bins` equal bins from the smallest value to the largest. Values that are not
/// finite are left out. If no value is finite, the histogram is empty, without bins. Throws a
/// ConfigError if `bins` is below 1.
LOCKSTEP_API Histogram make_histogram(std::span<const float> values, int bins = 64);
LOCKSTEP_API Histogram make_histogram(std::span<const double> values, int bins = 64);

/// An image of height * width pixels, RGB, row by row. The pixels need only be valid during the
/// call.
struct LOCKSTEP_API LoggedImage {
  std::span<const std::uint8_t> rgb{};
  int width = 0;
  int height = 0;
};

/// Rows of numbers, such as a confusion matrix. The spans need only be valid during the call.
struct LOCKSTEP_API LoggedTable {
  std::span<const std::string> labels{};        ///< for rows and columns; may be fewer
  std::span<const std::vector<double>> rows{};  ///< may differ in length

  /// The heading of row `i` and column `i`: its label, or its number if it has no label.
  std::string label(std::size_t i) const;
  std::size_t width() const;  ///< the length of the longest row
};

/// How a format spells numbers that are not finite.
struct LOCKSTEP_API NumberWords {
  std::string_view not_a_number{};
  std::string_view infinity{};
  std::string_view minus_infinity{};
};

/// Appends the shortest text that converts back to `value`, or one of `words`.
LOCKSTEP_API void append_number(std::string& to, double value, const NumberWords& words);

/// Appends `numbers` as a JSON list: "[0.5,1]".
LOCKSTEP_API void append_numbers(std::string& to, std::span<const double> numbers,
                                 const NumberWords& words);

/// Appends `seconds` with three decimals and a decimal point, whatever the program's locale.
LOCKSTEP_API void append_seconds(std::string& to, double seconds);

/// JSON has no literals for numbers that are not finite, so null replaces them.
inline constexpr NumberWords kJsonNumberWords{"null", "null", "null"};

/// The value of `parameter` as JSON.
LOCKSTEP_API std::string json_value(const HyperParameter& parameter);
/// {"labels":["cat","dog"],"rows":[[7,1],[2,9]]}, with null for numbers that are not finite.
LOCKSTEP_API std::string json_value(const LoggedTable& table);
/// `text` as a JSON string, in quotes; bytes that are not UTF-8 are replaced.
LOCKSTEP_API std::string json_string(std::string_view text);

/// Returns `text` if it is UTF-8. Otherwise stores `text` with invalid bytes replaced in `replaced`
/// and returns that: readers of protobuf messages reject invalid bytes, and with them the rest of
/// the file.
LOCKSTEP_API std::string_view as_utf8(std::string_view text, std::string& replaced);

/// Whether `letter` is one of the 62 letters and digits of ASCII, whatever the program's locale.
constexpr bool is_ascii_alphanumeric(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= 'a' && letter <= 'z');
}

}  // namespace lockstep
