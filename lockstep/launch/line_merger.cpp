#include <lockstep/launch/line_merger.h>

#include <algorithm>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr const char* kLineEnds = "\r\n";

// The size of the complete lines in `text`, whose first `searched` characters hold none. A carriage
// return at the end may be the first half of "\r\n".
std::size_t size_of_complete_lines(std::string_view text, std::size_t searched) {
  if (text.ends_with('\n')) return text.size();
  text.remove_suffix(text.empty() ? 0 : 1);
  const std::size_t begin = std::min(text.size(), searched > 0 ? searched - 1 : 0);
  const std::size_t end = text.substr(begin).find_last_of(kLineEnds);
  return end == std::string_view::npos ? 0 : begin + end + 1;
}

// The size of the first line of `text`, including its end.
std::size_t size_of_line(std::string_view text) {
  const std::size_t end = text.find_first_of(kLineEnds);
  if (end == std::string_view::npos) return text.size();
  return text.substr(end).starts_with("\r\n") ? end + 2 : end + 1;
}

}  // namespace

LineMerger::LineMerger(std::vector<std::string> labels)
    : labels_(std::move(labels)), pending_(labels_.size()) {}

std::string LineMerger::add(std::size_t writer, std::string_view text) {
  std::string& pending = pending_[writer];
  const std::size_t searched = pending.size();
  pending.append(text);
  std::size_t ready = size_of_complete_lines(pending, searched);
  if (pending.size() - ready > kLongestLine) ready = pending.size();
  return take(writer, ready);
}

std::string LineMerger::flush(std::size_t writer) { return take(writer, pending_[writer].size()); }

std::string LineMerger::take(std::size_t writer, std::size_t count) {
  std::string taken;
  if (count == 0) return taken;
  std::string& pending = pending_[writer];
  if (within_line_of_ && within_line_of_ != writer) {
    taken += '\n';
    within_line_of_.reset();
  }
  for (std::string_view left(pending.data(), count); !left.empty();) {
    const std::string_view line = left.substr(0, size_of_line(left));
    left.remove_prefix(line.size());
    if (!within_line_of_) taken += labels_[writer];
    taken += line;
    within_line_of_.reset();
  }
  if (taken.back() != '\n' && taken.back() != '\r') within_line_of_ = writer;
  pending.erase(0, count);
  return taken;
}

}  // namespace lockstep::launch
