#include <lockstep/core/suggestion.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// The word without leading dashes, in lower case.
std::string stem_of(std::string_view word) {
  std::string stem(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  for (char& letter : stem) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return stem;
}

// Counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
int typing_errors(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  std::iota(cost[0].begin(), cost[0].end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

constexpr std::size_t kShort = 3;  // letters

bool contains(std::string_view text, std::string_view part) {
  return part.size() >= kShort && text.find(part) != std::string_view::npos;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string stem = stem_of(word);
  const int allowed = std::min<int>(2, static_cast<int>(stem.size()) / 3);
  std::string nearest;
  std::pair<int, bool> best = {allowed, true};  // typing errors, whether the lengths differ
  for (const std::string& candidate : candidates) {
    const std::string other = stem_of(candidate);
    // A short word with another first letter is another word: "gpu" is no misspelt "cpu".
    if (stem.size() <= kShort && !other.starts_with(stem.substr(0, 1))) continue;
    const std::pair<int, bool> found = {typing_errors(stem, other), stem.size() != other.size()};
    if (found < best || (nearest.empty() && found == best)) {
      best = found;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return nearest;
  for (const std::string& candidate : candidates) {
    const std::string other = stem_of(candidate);
    if (contains(other, stem) || contains(stem, other)) return candidate;
  }
  return "";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_word(word, candidates);
  return nearest.empty() || nearest == word ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace lockstep
