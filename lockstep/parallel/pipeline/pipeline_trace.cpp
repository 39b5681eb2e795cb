#include <lockstep/parallel/pipeline/pipeline_trace.h>

#include <lockstep/core/strings.h>
#include <lockstep/core/trace/chrome_trace.h>

namespace lockstep::pipeline {

std::vector<Span> trace_spans(const Timeline& timeline, Clock::time_point began) {
  std::vector<Span> spans;
  for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
    for (const Interval& each : timeline.workers[worker]) {
      spans.push_back({.name = text(each.action),
                       .category = kind_category(each.action.kind),
                       .begin = began + duration_of(each.begin),
                       .end = began + duration_of(each.end),
                       .track = str("worker ", worker)});
    }
  }
  return spans;
}

void write_trace(const std::filesystem::path& path, const Timeline& timeline) {
  write_chrome_trace(path, {{.rank = 0, .host = {}, .clock = {}, .spans = trace_spans(timeline)}});
}

}  // namespace lockstep::pipeline
