// "did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The candidate closest to `word`: one that means what `word` means in PyTorch and the tools
/// around it ("--lr" for "--learning-rate"), or else one that differs by at most two typing errors,
/// or else one that contains `word` or is contained in it. Short words may differ by only one
/// typing error per three letters, and words of up to three letters must have the right first
/// letter. Empty if no candidate is close. Leading dashes and the case of letters are ignored, and
/// an underscore equals a dash.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean 'train'?", or "" if no candidate is close or `word` itself is one.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
