#include <lockstep/parallel/base/trace_of_ranks.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <lockstep/core/trace/clock_offset.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/parallel/base/spans_of_calls.h>

namespace lockstep::parallel {
namespace {

constexpr int kBarriers = 20;

std::int64_t now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Writes the file. Returns why it could not be written; empty if it was.
std::string problem_of_writing(const std::filesystem::path& path,
                               const std::vector<std::string>& spans_of_ranks) {
  try {
    std::vector<RankTrace> ranks;
    for (const std::string& spans : spans_of_ranks) ranks.push_back(rank_trace_from(spans));
    write_chrome_trace(path, ranks);
  } catch (const std::exception& error) {
    return first_line(error);
  }
  return "";
}

void append(std::vector<Span>& spans, std::vector<Span> more) {
  spans.insert(spans.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

}  // namespace

void write_recording(const std::filesystem::path& path, Clock::time_point from,
                     const std::vector<Span>& more, ProcessGroup& group) {
  std::vector<Span> shown;
  std::ranges::copy_if(more, std::back_inserter(shown),
                       [from](const Span& span) { return span.end > from; });
  std::vector<Span> spans = stop_recording(from);
  append(spans, spans_of_calls(group.recorded_calls(from), shown));
  append(spans, std::move(shown));
  write_trace_of_ranks(path, spans, group);
}

ClockOffset measure_clock_offset(ProcessGroup& group) {
  if (group.size() == 1) return {};
  std::vector<BarrierTimes> times;
  for (int i = 0; i < kBarriers; ++i) {
    BarrierTimes each;
    each.entered_ns = now_nanoseconds();
    group.barrier();
    each.left_ns = now_nanoseconds();
    times.push_back(each);
  }
  const std::string of_rank_0 = group.broadcast_object(to_text(times), 0);
  if (group.rank() == 0) return {};
  return clock_offset(barrier_times_from(of_rank_0), times);
}

void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group) {
  const RankTrace trace{.rank = group.rank(),
                        .host = host_name(),
                        .clock = measure_clock_offset(group),
                        .spans = spans};
  const auto all = group.gather_object(to_text(trace), 0);
  // A failure of rank 0 must be reported to all others.
  const std::string problem =
      group.broadcast_object(group.rank() == 0 ? problem_of_writing(path, all) : std::string(), 0);
  if (!problem.empty()) throw DataError(problem);
}

}  // namespace lockstep::parallel
