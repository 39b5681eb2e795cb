// "did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The candidate that `word` is probably meant to be: within two typing errors (for short words one
/// per three letters), or one that contains it or is contained in it. Empty when none is near.
/// Leading dashes do not count.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean 'train'?", or "" when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
