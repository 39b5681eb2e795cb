#include <lockstep/train/run_trace.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/trace_of_ranks.h>
#include <lockstep/trace/span_recorder.h>

namespace lockstep {

void validate(const TraceOptions& options) {
  OptionCheck("Trainer").in_range("trace.steps", static_cast<double>(options.steps), 1, 100);
}

RunTrace::RunTrace(const TraceOptions& options, bool writes) : file_(options.file) {
  if (writes) {
    make_writable_directory(file_.has_parent_path() ? file_.parent_path() : ".");
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);  // so that an old file does not pass for the new one
  }
  begins_.resize(static_cast<std::size_t>(options.steps), Clock::now());
  name_thread_track("training");
  start_recording();
}

RunTrace::~RunTrace() {
  if (!finished_) stop_recording(Clock::time_point::max());
}

void RunTrace::begin_step() {
  begins_[next_] = Clock::now();
  next_ = (next_ + 1) % begins_.size();
}

// Each step of the ring is older than the one behind it, so that the next place has the oldest.
void RunTrace::finish(std::vector<Span> more, ProcessGroup& group) {
  if (std::exchange(finished_, true)) return;
  const Clock::time_point from = begins_[next_];
  std::vector<Span> spans = stop_recording(from);
  std::copy_if(std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()),
               std::back_inserter(spans), [from](const Span& span) { return span.end > from; });
  write_trace_of_ranks(file_, spans, group);
}

}  // namespace lockstep
