#include <lockstep/parallel/trace_of_ranks.h>

#include <string>

#include <lockstep/core/error.h>

namespace lockstep {

void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group) {
  const auto events = group.gather_object(chrome_events(group.rank(), spans), 0);
  std::string problem;
  try {
    if (group.rank() == 0) write_chrome_trace(path, events);
  } catch (const Error& error) {  // the others must hear of it
    problem = error.what();
  }
  problem = group.broadcast_object(problem, 0);
  if (!problem.empty()) throw DataError(problem);
}

}  // namespace lockstep
