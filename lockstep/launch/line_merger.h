// Text of several writers, merged into one without tearing their lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Keeps what a writer has written until its line is complete. A line ends with a newline, or with
/// the carriage return of a progress bar. The bytes of a writer keep their order, and none is
/// changed; a label or a newline is only added where a line begins or another writer's text was cut
/// off.
class LineMerger {
 public:
  /// The part of a line that exceeds it is passed on in pieces.
  static constexpr std::size_t kLongestLine = 1 << 20;

  /// One label for each writer, which begins each of its lines; empty for none.
  explicit LineMerger(std::vector<std::string> labels);

  /// Takes what `writer` has written; returns what can be passed on.
  std::string add(std::size_t writer, std::string_view text);
  /// Returns what `writer` has written without ending its line.
  std::string flush(std::size_t writer);

 private:
  std::string take(std::size_t writer, std::size_t count);

  const std::vector<std::string> labels_;
  std::vector<std::string> pending_;
  std::optional<std::size_t>
      within_line_of_;  ///< The rank whose unfinished line was passed on last.
};

}  // namespace lockstep
