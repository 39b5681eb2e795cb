// Passes the cuts of a model between processes as text.
#include <lockstep/bench/strategies/cuts.h>
#include <lockstep/bench/word_list.h>
#include <lockstep/core/strings.h>

namespace lockstep::bench {

std::string note_of(const StageCuts& cuts) { return str(join(cuts.names, ","), '\n', cuts.about); }

StageCuts parse_stage_cuts(int stages, const std::string& note) {
  const std::size_t end = note.find('\n');
  return {.stages = stages,
          .names = words_of(note.substr(0, end)),
          .about = end == std::string::npos ? "" : note.substr(end + 1)};
}

}  // namespace lockstep::bench
