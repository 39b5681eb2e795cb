// The note about other programs that used processors during a measurement.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include <lockstep/core/other_programs.h>
#include <lockstep/report/text.h>

namespace lockstep {

/// A sentence about the result of OtherPrograms::share(); empty below a twentieth, and if it is
/// unknown.
inline std::string other_programs_note(std::optional<double> share) {
  constexpr double kNoticeableShare = 0.05;
  if (share.value_or(0) < kNoticeableShare) return "";
  return "Other programs used " + fixed_text(100 * *share, 0) +
         "% of the processors meanwhile: measure again without them.";
}

/// Prints the note, unless empty, as a line on standard error.
inline void warn_of_other_programs(const OtherPrograms& others) {
  const std::string note = other_programs_note(others.share());
  if (!note.empty()) std::cerr << "note: " << note << std::endl;
}

}  // namespace lockstep
