#include <lockstep/train/measuring/run_trace.h>

#include <exception>
#include <system_error>
#include <utility>

#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/parallel/base/trace_of_ranks.h>
#include <lockstep/train/measuring/gpu_trace.h>

namespace lockstep {

void validate(const TraceOptions& options) {
  OptionCheck("Trainer").in_range("trace.steps", static_cast<double>(options.steps), 1, 100);
}

}  // namespace lockstep

namespace lockstep::train {

RunTrace::RunTrace(const TraceOptions& options, bool writes, bool on_gpu) : file_(options.file) {
  if (writes) {
    make_writable_directory(folder_of(file_));
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);  // an old file must not pass for the new one
  }
  begins_.resize(static_cast<std::size_t>(options.steps), Clock::now());
  name_thread_track("training");
  start_recording();
  if (on_gpu) GpuTrace::instance().start();
}

RunTrace::~RunTrace() {
  if (finished_) return;
  stop_recording(Clock::time_point::max());
  try {
    GpuTrace::instance().stop(Clock::time_point::max());
  } catch (const std::exception&) {  // the run has failed, and this error would hide why
  }
}

void RunTrace::begin_step() {
  begins_[next_] = Clock::now();
  next_ = (next_ + 1) % begins_.size();
}

// The ring's next position holds the oldest step.
void RunTrace::finish(std::vector<Span> more, ProcessGroup& group) {
  if (std::exchange(finished_, true)) return;
  const Clock::time_point from = begins_[next_];
  for (Span& span : GpuTrace::instance().stop(from)) more.push_back(std::move(span));
  parallel::write_recording(file_, from, more, group);
}

}  // namespace lockstep::train
