#include <lockstep/bench/trace_folder.h>

#include <cctype>

#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/parallel/base/trace_of_ranks.h>

namespace lockstep::bench {
namespace {

constexpr int kTracedSteps = 10;

}  // namespace

std::filesystem::path trace_file_of(const std::filesystem::path& folder, const std::string& row) {
  std::string name;
  for (const char letter : row) {
    const bool stays =
        std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '_';
    if (stays) name += letter;
    if (!stays && !name.empty() && name.back() != '-') name += '-';
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return folder / (name + ".json");
}

void trace_steps(const std::filesystem::path& file, const std::function<void()>& step,
                 const std::function<std::vector<Span>()>& spans, ProcessGroup& group) {
  group.barrier();
  name_thread_track("training");
  start_recording();
  const Clock::time_point from = Clock::now();
  for (int i = 0; i < kTracedSteps; ++i) {
    const SpanScope scope("step", "step", i + 1);
    step();
  }
  parallel::write_recording(file, from, spans(), group);
}

}  // namespace lockstep::bench
