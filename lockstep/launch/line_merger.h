// Merges the text of several writers without tearing their lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// Buffers a writer's text until its line is complete. A line ends with a newline, or with the
/// carriage return of a progress bar. The bytes of each writer keep their order and are not
/// changed. A label or a newline is only added at the beginning of a line, or after another
/// writer's unfinished line.
class LineMerger {
 public:
  /// A longer line is passed on in pieces.
  static constexpr std::size_t kLongestLine = 1 << 20;

  /// One label per writer, put at the beginning of each of its lines; an empty label adds nothing.
  explicit LineMerger(std::vector<std::string> labels);

  /// Adds text of `writer`; returns the text that can be passed on.
  std::string add(std::size_t writer, std::string_view text);
  /// Returns the unfinished line of `writer`.
  std::string flush(std::size_t writer);

 private:
  std::string take(std::size_t writer, std::size_t count);

  const std::vector<std::string> labels_;
  std::vector<std::string> pending_;
  std::optional<std::size_t>
      within_line_of_;  ///< The writer whose unfinished line was passed on last.
};

}  // namespace lockstep::launch
