// The note about other programs that used processors during a measurement.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {

/// A sentence about `share`, the result of OtherPrograms::share(). Empty if the share is below 5%
/// or unknown.
inline std::string other_programs_note(std::optional<double> share) {
  constexpr double kNoticeableShare = 0.05;
  if (share.value_or(0) < kNoticeableShare) return "";
  return "Other programs used " + report::fixed_text(100 * *share, 0) +
         "% of the processors meanwhile: measure again without them.";
}

/// Prints other_programs_note() as a line on standard error, unless it is empty.
inline void warn_of_other_programs(const OtherPrograms& others) {
  const std::string note = other_programs_note(others.share());
  if (!note.empty()) std::cerr << "note: " << note << std::endl;
}

}  // namespace lockstep::bench
