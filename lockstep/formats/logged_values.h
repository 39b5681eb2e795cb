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
  double sum = 0;             ///< sum of the values
  double sum_of_squares = 0;  ///< sum of their squares
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

}  // namespace lockstep
