#include <lockstep/parallel/trace_of_ranks.h>

#include <exception>
#include <string>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// What a rank that has no events sends in their place, before the reason. Events begin with '['.
constexpr char kNoEvents = '!';

std::string events_or_problem(int rank, const std::vector<Span>& spans) {
  try {
    return chrome_events(rank, spans);
  } catch (const std::exception& error) {
    return kNoEvents + first_line(error);
  }
}

// Writes the file. Returns why it could not be written; empty if it was.
std::string problem_of_writing(const std::filesystem::path& path,
                               const std::vector<std::string>& events_of_ranks) {
  for (std::size_t rank = 0; rank < events_of_ranks.size(); ++rank) {
    const std::string& events = events_of_ranks[rank];
    if (events.front() != kNoEvents) continue;
    return str("the trace ", path.string(), " was not written, because rank ", rank,
               " has spans that cannot be put into text: ", events.substr(1));
  }
  try {
    write_chrome_trace(path, events_of_ranks);
  } catch (const std::exception& error) {
    return first_line(error);
  }
  return "";
}

}  // namespace

void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group) {
  // Whatever fails on one rank, the others must hear of it.
  const auto events = group.gather_object(events_or_problem(group.rank(), spans), 0);
  const std::string problem = group.broadcast_object(
      group.rank() == 0 ? problem_of_writing(path, events) : std::string(), 0);
  if (!problem.empty()) throw DataError(problem);
}

}  // namespace lockstep
