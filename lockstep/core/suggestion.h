// "did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The candidate closest to `word`: within two typing errors (for short words one per three
/// letters, and none in the first of three), or containing it or contained in it. Empty if none is
/// close. Leading dashes and the case of letters are ignored.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean 'train'?", or "" if no candidate is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
