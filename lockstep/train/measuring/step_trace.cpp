#include <lockstep/train/measuring/step_trace.h>

#include <exception>
#include <set>
#include <system_error>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>

namespace lockstep::train {
namespace {
namespace profiler = torch::profiler::impl;
}  // namespace

StepTrace::StepTrace(const ProfilerOptions& options, bool on_gpu)
    : file_(options.trace_file), first_(1), end_(1 + options.trace_steps), on_gpu_(on_gpu) {
  make_writable_directory(folder_of(file_));
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);  // an old file must not pass for the new one
}

StepTrace::~StepTrace() {
  if (state_ != State::kRecording) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception&) {  // the run has failed, and this error would hide why
  }
}

void StepTrace::begin_step(std::int64_t step) {
  if (step == end_) finish();
  if (step != first_) return;
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (on_gpu_) activities.insert(profiler::ActivityType::CUDA);
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  state_ = State::kRecording;
}

void StepTrace::finish() {
  if (state_ == State::kWaiting) {
    log_warning("profiler: there is no trace ", file_.string(), ": the run ended before its step ",
                first_ + 1, ", the first that is traced; run more steps");
  }
  if (state_ != State::kRecording) return;
  state_ = State::kWritten;
  std::error_code error;
  torch::autograd::profiler::disableProfiler()->save(file_.string());
  if (std::filesystem::file_size(file_, error) > 0 && !error) return;
  throw DataError(lockstep::str("profiler: LibTorch's profiler has not written the trace ",
                                file_.string(),
                                "; look at the folder's space and permissions, or "
                                "use the profiler 'simple'"));
}

}  // namespace lockstep::train
