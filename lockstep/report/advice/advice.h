// What limited a run, the figures that show it, and what to try.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/advice/run_facts.h>

namespace lockstep::report {

/// Advice::limit of a run that other programs slowed down.
inline constexpr const char* kOtherPrograms = "other programs";

struct Advice {
  /// "loader", "first batch", "straggler", "pipeline bubble", "communication", "small buckets",
  /// "oversubscription", "other programs", "launch overhead" or "compute".
  std::string limit{};
  double share = 0;       ///< share of RunFacts::step_seconds, from 0 to 1; sometimes estimated
  std::string figures{};  ///< the evidence, as a sentence
  std::string option{};   ///< what to try, as a sentence
};

/// The limits that take at least a twentieth of a step, largest first. If there are none, or if
/// computing takes most of the time, the last entry is "compute". Limits do not overlap, so their
/// shares add up to at most 1.
std::vector<Advice> advise(const RunFacts& facts);

/// A sentence that says what the shares are shares of.
std::string basis_of_shares(const RunFacts& facts);

/// A heading and the advice as text for people; each line ends with a line feed.
std::string advice_text(const RunFacts& facts, const std::vector<Advice>& advice);

}  // namespace lockstep::report
