// What limited a run, with the figures that say so, and what to try.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/advice/run_facts.h>

namespace lockstep {

struct Advice {
  /// "loader", "communication", "straggler", "small buckets", "oversubscription", "launch overhead"
  /// or "compute".
  std::string limit{};
  double share = 0;       ///< of a step that it takes, from 0 to 1; an estimate for some
  std::string figures{};  ///< a sentence
  std::string option{};   ///< what to try: a sentence
};

/// The limits that take at least a twentieth of a step, the largest first. Where there is none, and
/// where computing takes most of the time, "compute" is the last.
std::vector<Advice> advise(const RunFacts& facts);

/// A heading and the advice, for people, several lines with a line feed each.
std::string advice_text(const RunFacts& facts, const std::vector<Advice>& advice);

}  // namespace lockstep
