// What limited a run, with the figures that say so, and what to try.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/advice/run_facts.h>

namespace lockstep {

struct Advice {
  /// "loader", "first batch", "straggler", "pipeline bubble", "communication", "small buckets",
  /// "oversubscription", "other programs", "launch overhead" or "compute".
  std::string limit{};
  double share = 0;       ///< of RunFacts::step_seconds, from 0 to 1; an estimate for some
  std::string figures{};  ///< a sentence
  std::string option{};   ///< what to try: a sentence
};

/// The limits that take at least a twentieth of a step, the largest first. Where there is none, and
/// where computing takes most of the time, "compute" is the last. No two limits claim the same
/// time: the shares add up to 1 at most.
std::vector<Advice> advise(const RunFacts& facts);

/// What the shares are shares of: a sentence.
std::string basis_of_shares(const RunFacts& facts);

/// A heading and the advice, for people, several lines with a line feed each.
std::string advice_text(const RunFacts& facts, const std::vector<Advice>& advice);

}  // namespace lockstep
