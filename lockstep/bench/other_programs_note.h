// What is said of other programs that had processors while something was measured.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include <lockstep/core/other_programs.h>
#include <lockstep/report/text.h>

namespace lockstep {

/// A sentence for what OtherPrograms::share() has given; empty below a twentieth, and where it is
/// not known.
inline std::string other_programs_note(std::optional<double> share) {
  constexpr double kNoticeableShare = 0.05;
  if (share.value_or(0) < kNoticeableShare) return "";
  return "Other programs used " + fixed_text(100 * *share, 0) +
         "% of the processors meanwhile: measure again without them.";
}

/// The same as a line on standard error, where there is something to say.
inline void warn_of_other_programs(const OtherPrograms& others) {
  const std::string note = other_programs_note(others.share());
  if (!note.empty()) std::cerr << "note: " << note << std::endl;
}

}  // namespace lockstep
