#include <lockstep/comm/algorithms/tree.h>

#include <bit>

namespace lockstep::comm {
namespace {

int depth_of(int rank) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(rank) + 1U)) - 1;
}

}  // namespace

// A rank at depth d below the root of a tree of height H passes chunk c up in step c + H - d, and
// down in step c + H + d, in both cases one step after it has received it.
CommSchedule tree_schedule(const ScheduleRequest& request) {
  const std::vector<ScheduledRange> chunks = chunks_of(request);
  const int height = depth_of(request.size - 1);
  const int depth = depth_of(request.rank);
  const int parent = (request.rank - 1) / 2;
  std::vector<int> children;
  for (int child = 2 * request.rank + 1; child <= 2 * request.rank + 2; ++child) {
    if (child < request.size) children.push_back(child);
  }
  CommSchedule schedule(chunks.size() + static_cast<std::size_t>(2 * height - 1));
  // In step 0 the deepest rank sends the first chunk.
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const auto step = [&](int offset) -> ScheduleStep& {
      return schedule[c + static_cast<std::size_t>(height + offset)];
    };
    for (const int child : children) {
      add_receive(step(-depth - 1), child, chunks[c], OnArrival::kReduce);
      add_send(step(depth), child, chunks[c]);
    }
    if (request.rank != 0) {
      add_send(step(-depth), parent, chunks[c]);
      add_receive(step(depth - 1), parent, chunks[c], OnArrival::kOverwrite);
    }
  }
  return schedule;
}

}  // namespace lockstep::comm
