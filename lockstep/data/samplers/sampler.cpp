#include <lockstep/data/samplers/sampler.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/samplers/sampler_checks.h>

namespace lockstep {
namespace {

// `seen` returns the count of an index, initially 0.
template <class Counts>
std::vector<std::uint32_t> count_occurrences(std::span<const std::int64_t> order, Counts seen) {
  std::vector<std::uint32_t> occurrences(order.size());
  bool repeats = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    occurrences[i] = seen[order[i]]++;
    repeats = repeats || occurrences[i] > 0;
  }
  if (!repeats) occurrences = {};
  return occurrences;
}

}  // namespace

std::vector<std::uint32_t> occurrences_in(std::span<const std::int64_t> order) {
  if (order.empty()) return {};
  const auto [least, most] = std::minmax_element(order.begin(), order.end());
  // A table is the fastest, but too large for a few indices of a huge data set.
  if (*least >= 0 && *most / 8 <= static_cast<std::int64_t>(order.size())) {
    const auto size = static_cast<std::size_t>(*most) + 1;
    return count_occurrences(order, std::vector<std::uint32_t>(size));
  }
  return count_occurrences(order, std::unordered_map<std::int64_t, std::uint32_t>());
}

std::string Sampler::describe() const { return str("Sampler(size=", size(), ")"); }

EpochShare Sampler::share(std::int64_t epoch, std::int64_t taken) const {
  // At the end nothing is left. With padding, `taken` need not be a multiple of the ranks there.
  if (taken > 0 && taken == shared_size()) return {};
  const int ranks = world_size();
  if (taken % ranks != 0) {
    throw CheckpointError(str("sampler position: the ", taken,
                              " indices taken do not divide by the ", ranks, " ranks of ",
                              describe(),
                              ", which does not know the others' shares; go on with as "
                              "many ranks as before, or from the beginning of an epoch"));
  }
  EpochShare share{indices(epoch), {}};
  const auto given = static_cast<std::int64_t>(share.indices.size());
  LOCKSTEP_CHECK(given == size(), "the sampler gave ", given, " indices and says ", size());
  // Shares may differ by one, so some ranks reach the end before others.
  const std::int64_t before = std::min(taken / ranks, given);
  if (may_repeat()) share.occurrences = occurrences_in(share.indices);
  share.indices.erase(share.indices.begin(), share.indices.begin() + before);
  if (!share.occurrences.empty()) {
    share.occurrences.erase(share.occurrences.begin(), share.occurrences.begin() + before);
  }
  return share;
}

SequentialSampler::SequentialSampler(std::int64_t dataset_size) : dataset_size_(dataset_size) {
  const OptionCheck check("SequentialSampler");
  check.at_least("dataset_size", static_cast<double>(dataset_size), 0);
}

std::vector<std::int64_t> SequentialSampler::indices(std::int64_t) const {
  std::vector<std::int64_t> order(dataset_size_);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::string SequentialSampler::describe() const {
  return str("SequentialSampler(dataset_size=", dataset_size_, ")");
}

EvaluationSampler::EvaluationSampler(std::int64_t dataset_size, int rank, int world_size)
    : dataset_size_(dataset_size), rank_(rank), world_size_(world_size) {
  data::check_place("EvaluationSampler", dataset_size, rank, world_size);
}

std::vector<std::int64_t> EvaluationSampler::indices(std::int64_t epoch) const {
  return share(epoch, 0).indices;
}

EpochShare EvaluationSampler::share(std::int64_t, std::int64_t taken) const {
  EpochShare share{std::vector<std::int64_t>(share_size(taken)), {}};
  for (std::size_t i = 0; i < share.indices.size(); ++i) {
    share.indices[i] = taken + rank_ + static_cast<std::int64_t>(i) * world_size_;
  }
  return share;
}

std::int64_t EvaluationSampler::share_size(std::int64_t taken) const {
  const std::int64_t left = dataset_size_ - taken;
  return left > rank_ ? (left - rank_ + world_size_ - 1) / world_size_ : 0;
}

std::string EvaluationSampler::describe() const {
  return str("EvaluationSampler(dataset_size=", dataset_size_, ")");
}

}  // namespace lockstep
