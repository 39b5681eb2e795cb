#include <lockstep/data/weighted_sampler.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/epoch_generator.h>
#include <lockstep/data/sampler_checks.h>

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
  check.positive("the sum of the weights", std::accumulate(weights.begin(), weights.end(), 0.0));
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
                                    ", the number of weights "
                                    "above 0, got ",
                                    num_samples_, "; give fewer or replacement = true"));
  }
}

std::vector<std::int64_t> WeightedRandomSampler::indices(std::int64_t epoch) const {
  // from_blob wants a mutable pointer; nobody writes through it.
  const torch::Tensor weights =
      torch::from_blob(const_cast<double*>(weights_.data()),
                       {static_cast<std::int64_t>(weights_.size())}, torch::kFloat64);
  return to_indices(
      torch::multinomial(weights, num_samples_, replacement_, epoch_generator(seed_, epoch)));
}

std::string WeightedRandomSampler::describe() const {
  return lockstep::str(
      std::boolalpha, "WeightedRandomSampler(", weights_.size(), " weights with fingerprint ",
      std::hex, fingerprint(std::as_bytes(std::span(weights_))), std::dec,
      ", num_samples=", num_samples_, ", replacement=", replacement_, ", seed=", seed_, ")");
}

}  // namespace lockstep
