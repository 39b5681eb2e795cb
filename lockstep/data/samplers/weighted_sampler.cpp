#include <lockstep/data/samplers/weighted_sampler.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/data/samplers/sampler_checks.h>

namespace lockstep {
namespace {

constexpr std::size_t kMostWeights = 1 << 24;

void check_weights(const std::vector<double>& weights) {
  const OptionCheck check("WeightedRandomSampler");
  check.at_least("the number of weights", static_cast<double>(weights.size()), 1);
  if (weights.size() > kMostWeights) {
    throw ConfigError(lockstep::str("WeightedRandomSampler: torch.multinomial takes at most ",
                                    kMostWeights, " weights, got ", weights.size()));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= 0 && std::isfinite(weights[i])) continue;
    throw ConfigError(lockstep::str("WeightedRandomSampler: weights[", i,
                                    "] must be at least 0 and finite, got ", weights[i]));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (std::isinf(sum)) {
    throw ConfigError(
        "WeightedRandomSampler: the sum of the weights is infinite; divide them by the largest");
  }
  check.positive("the sum of the weights", sum);
}

// The cumulative sums of torch.multinomial for draws with replacement, bit for bit.
std::vector<double> cumulative_shares(const std::vector<double>& weights) {
  std::vector<double> cumulative(weights.size());
  std::partial_sum(weights.begin(), weights.end(), cumulative.begin());
  const double sum = cumulative.back();
  for (double& share : cumulative) share /= sum;
  cumulative.back() = 1;
  return cumulative;
}

// For 0, 1/slices, 2/slices, ... 1: the number of shares below it, which is the index of the first
// share that is not below it.
std::vector<std::int32_t> slice_begins(const std::vector<double>& cumulative, std::size_t slices) {
  const auto scale = static_cast<double>(slices);
  std::vector<std::int32_t> begins(slices + 2);
  for (const double share : cumulative) ++begins[static_cast<std::size_t>(share * scale) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  return begins;
}

// torch.multinomial searches all shares for each number by bisection, where every step is a cache
// miss. A table of the beginnings of equal slices of [0, 1) leaves a step or two. It cannot change
// the result: the number of slices is a power of two, so no product is rounded.
std::vector<std::int64_t> draw_with_replacement(const std::vector<double>& weights,
                                                std::int64_t count, at::Generator generator) {
  const std::vector<double> cumulative = cumulative_shares(weights);
  const std::size_t slices = std::bit_ceil(weights.size());
  const auto scale = static_cast<double>(slices);
  const std::vector<std::int32_t> begins = slice_begins(cumulative, slices);
  const torch::Tensor numbers = torch::rand({count}, generator, torch::kFloat64);
  const auto* number = numbers.const_data_ptr<double>();
  std::vector<std::int64_t> drawn(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto slice = static_cast<std::size_t>(number[i] * scale);
    const auto first = cumulative.begin() + begins[slice];
    const auto last = cumulative.begin() + begins[slice + 1];
    drawn[i] = std::lower_bound(first, last, number[i]) - cumulative.begin();
  }
  return drawn;
}

}  // namespace

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights,
                                             const WeightedRandomSamplerOptions& options)
    : weights_(std::move(weights)),
      num_samples_(options.num_samples.value_or(static_cast<std::int64_t>(weights_.size()))),
      replacement_(options.replacement),
      seed_(options.seed) {
  check_weights(weights_);
  const OptionCheck check("WeightedRandomSampler");
  check.at_least("num_samples", static_cast<double>(num_samples_), 1);
  const auto drawable =
      std::count_if(weights_.begin(), weights_.end(), [](double weight) { return weight > 0; });
  if (!replacement_ && num_samples_ > drawable) {
    throw ConfigError(lockstep::str("WeightedRandomSampler: num_samples must be at most ", drawable,
                                    ", the number of weights above 0, got ", num_samples_,
                                    "; give fewer or replacement = true"));
  }
}

std::vector<std::int64_t> WeightedRandomSampler::indices(std::int64_t epoch) const {
  at::Generator generator = data::epoch_generator(seed_, epoch);
  // A single draw is made as if without replacement.
  if (replacement_ && num_samples_ > 1) {
    return draw_with_replacement(weights_, num_samples_, generator);
  }
  // from_blob requires a mutable pointer, but the tensor is never written.
  const torch::Tensor weights =
      torch::from_blob(const_cast<double*>(weights_.data()),
                       {static_cast<std::int64_t>(weights_.size())}, torch::kFloat64);
  return data::to_indices(torch::multinomial(weights, num_samples_, replacement_, generator));
}

std::string WeightedRandomSampler::describe() const {
  return lockstep::str(
      std::boolalpha, "WeightedRandomSampler(", weights_.size(), " weights with fingerprint ",
      std::hex, data::fingerprint(std::as_bytes(std::span(weights_))), std::dec,
      ", num_samples=", num_samples_, ", replacement=", replacement_, ", seed=", seed_, ")");
}

}  // namespace lockstep
