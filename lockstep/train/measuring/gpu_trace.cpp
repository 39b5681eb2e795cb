#include <lockstep/train/measuring/gpu_trace.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/strings.h>

namespace lockstep::train {
namespace {

constexpr std::size_t kMostMarks = 8192;  // two per phase

thread_local bool is_timed_thread = false;

bool is_phase(const char* category) { return std::strcmp(category, "phase") == 0; }

}  // namespace

// Never destroyed: threads may outlive the statics.
GpuTrace& GpuTrace::instance() {
  static auto* const trace = new GpuTrace;
  return *trace;
}

// Set only once, because scopes of an earlier recording may still read stubs_ on other threads.
void GpuTrace::start() {
  if (stubs_.load() == nullptr) stubs_ = torch::profiler::impl::cudaStubs();
  if (!stubs_.load()->enabled()) return;
  marks_.clear();
  is_timed_thread = true;
  observe_spans(this);
}

void GpuTrace::begin(const char* name, const char* category, std::int64_t number) noexcept {
  try {
    stubs_.load()->rangePush(number < 0 ? name : str(name, ' ', number).c_str());
  } catch (const std::exception&) {  // a trace must not end a run
  }
  if (is_timed_thread && is_phase(category)) mark(name);
}

void GpuTrace::end(const char* category) noexcept {
  if (is_timed_thread && is_phase(category)) mark(nullptr);
  try {
    stubs_.load()->rangePop();
  } catch (const std::exception&) {
  }
}

// Skipped during graph capture: recorded work has no time until a replay, which runs as a whole.
void GpuTrace::mark(const char* name) noexcept {
  if (is_capturing()) return;
  try {
    if (marks_.size() == kMostMarks) marks_.pop_front();
    Mark mark{.name = name, .event = {}};
    c10::DeviceIndex device = 0;
    std::int64_t ignored = 0;
    stubs_.load()->record(&device, &mark.event, &ignored);
    marks_.push_back(std::move(mark));
  } catch (const std::exception& error) {
    is_timed_thread = false;
    marks_.clear();
    observe_spans(nullptr);
    log_warning("trace: no times of the GPU: ", first_line(error));
  }
}

std::vector<Span> GpuTrace::stop(Clock::time_point from) {
  if (!is_timed_thread) return {};
  observe_spans(nullptr);
  std::vector<Span> spans;
  try {
    stubs_.load()->synchronize();
    mark(nullptr);
    spans = spans_since(from);
  } catch (const std::exception& error) {
    log_warning("trace: no times of the GPU: ", first_line(error));
  }
  is_timed_thread = false;
  marks_.clear();
  return spans;
}

// Events only give their distance, as a float of microseconds, which is exact for neighbouring
// events. Times are therefore counted back from the last event, which the GPU reaches now.
std::vector<Span> GpuTrace::spans_since(Clock::time_point from) const {
  std::vector<Span> spans;
  std::vector<Clock::time_point> ends;  // ends of the open phases, going backwards
  Clock::time_point time = Clock::now();
  for (std::size_t i = marks_.size(); i-- > 1 && time > from;) {
    const Mark& earlier = marks_[i - 1];
    const std::chrono::duration<double, std::micro> apart(
        stubs_.load()->elapsed(&earlier.event, &marks_[i].event));
    time -= std::chrono::duration_cast<Clock::duration>(apart);
    if (earlier.name == nullptr) {
      ends.push_back(time);
    } else if (!ends.empty()) {
      if (ends.back() > from) {
        spans.push_back({.name = earlier.name,
                         .category = "gpu",
                         .begin = time,
                         .end = ends.back(),
                         .track = "GPU"});
      }
      ends.pop_back();
    }
  }
  std::ranges::reverse(spans);
  return spans;
}

}  // namespace lockstep::train
