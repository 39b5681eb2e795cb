#include <lockstep/train/step_trace.h>

#include <exception>
#include <set>
#include <system_error>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>

namespace lockstep {
namespace {

namespace profiler = torch::profiler::impl;

std::filesystem::path folder_of_trace(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace

StepTrace::StepTrace(const ProfilerOptions& options, bool on_gpu)
    : file_(options.trace_file), first_(1), end_(1 + options.trace_steps), on_gpu_(on_gpu) {
  make_writable_directory(folder_of_trace(file_));
}

StepTrace::~StepTrace() {
  if (!records_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception&) {  // the run has failed, and this would hide why
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
  records_ = true;
}

void StepTrace::finish() {
  if (!records_) return;
  records_ = false;
  std::error_code error;
  std::filesystem::remove(file_, error);  // so that an old file does not pass for the new one
  torch::autograd::profiler::disableProfiler()->save(file_.string());
  if (std::filesystem::file_size(file_, error) > 0 && !error) return;
  throw DataError(lockstep::str("profiler: LibTorch's profiler has not written the trace ",
                                file_.string(),
                                "; look at the folder's space and permissions, or "
                                "use the profiler 'simple'"));
}

}  // namespace lockstep
