#include <lockstep/parallel/pipeline/pipeline_trace.h>

#include <lockstep/core/strings.h>
#include <lockstep/trace/chrome_trace.h>

namespace lockstep::pipeline {
namespace {

Clock::time_point at_seconds(double seconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

const char* category_of(Kind kind) {
  if (is_message(kind)) return "message";
  if (kind == Kind::kReduce) return "reduction";
  return kind == Kind::kForward ? "forward" : "backward";
}

}  // namespace

void write_trace(const std::filesystem::path& path, const Timeline& timeline) {
  std::vector<Span> spans;
  for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
    for (const Interval& each : timeline.workers[worker]) {
      spans.push_back({.name = text(each.action),
                       .category = category_of(each.action.kind),
                       .begin = at_seconds(each.begin),
                       .end = at_seconds(each.end),
                       .track = str("worker ", worker)});
    }
  }
  write_chrome_trace(path, {chrome_events(0, spans)});
}

}  // namespace lockstep::pipeline
