#include <lockstep/core/suggestion.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// A word of PyTorch, Lightning, torchrun, Hugging Face or timm, and the one that Lockstep uses.
struct Synonym {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Synonym kSynonyms[] = {
    // options
    {"learning-rate", "lr"},
    {"epochs", "max-epochs"},
    {"num-epochs", "max-epochs"},
    {"num-train-epochs", "max-epochs"},
    {"train-batch-size", "batch-size"},
    {"pretrained", "weights"},
    {"checkpoint", "weights"},
    {"num-workers", "workers"},
    {"arch", "model"},
    {"opt", "optimizer"},
    {"sched", "schedule"},
    {"lr-scheduler", "schedule"},
    {"amp", "precision"},
    {"dtype", "precision"},
    {"device", "accelerator"},
    {"img-size", "image-size"},
    {"output-dir", "out"},
    {"data-path", "data"},
    {"data-dir", "data"},
    {"max-grad-norm", "gradient-clip-norm"},
    {"clip-grad", "gradient-clip-norm"},
    {"clip-grad-norm", "gradient-clip-norm"},
    {"gradient-accumulation-steps", "accumulate-grad-batches"},
    {"grad-accum-steps", "accumulate-grad-batches"},
    {"sync-bn", "sync-batchnorm"},
    {"resume-from-checkpoint", "resume"},
    {"ckpt-path", "resume"},
    {"gpus", "nproc-per-node"},
    {"devices", "nproc-per-node"},
    {"patience", "early-stopping"},
    // commands
    {"fit", "train"},
    // precisions
    {"fp16", "16"},
    {"half", "16"},
    {"float16", "16"},
    {"16-mixed", "16"},
    {"bfloat16", "bf16"},
    {"bf16-mixed", "bf16"},
    {"fp32", "32"},
    {"float32", "32"},
    {"32-true", "32"},
    // strategies
    {"dataparallel", "dp"},
    {"distributeddataparallel", "ddp"},
    {"zero", "zero1"},
    {"fsdp", "zero1"},
};

// The word without leading dashes, in lower case, with dashes for underscores.
std::string stem_of(std::string_view word) {
  std::string stem(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  for (char& letter : stem) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (letter == '_') letter = '-';
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

// The candidate that `stem` is another tool's word for; empty if there is none.
std::string word_of_ours(std::string_view stem, const std::vector<std::string>& candidates) {
  for (const auto& [theirs, ours] : kSynonyms) {
    if (stem != theirs) continue;
    for (const std::string& candidate : candidates) {
      if (stem_of(candidate) == ours) return candidate;
    }
  }
  return "";
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string stem = stem_of(word);
  if (std::string ours = word_of_ours(stem, candidates); !ours.empty()) return ours;
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
