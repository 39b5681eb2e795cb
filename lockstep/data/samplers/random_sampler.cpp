#include <lockstep/data/samplers/random_sampler.h>

#include <algorithm>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/data/samplers/sampler_checks.h>

namespace lockstep {

RandomSampler::RandomSampler(std::int64_t dataset_size, const RandomSamplerOptions& options)
    : dataset_size_(dataset_size),
      num_samples_(options.num_samples.value_or(dataset_size)),
      replacement_(options.replacement),
      seed_(options.seed) {
  const OptionCheck check("RandomSampler");
  check.at_least("dataset_size", static_cast<double>(dataset_size), 1);
  check.at_least("num_samples", static_cast<double>(num_samples_), 1);
}

std::vector<std::int64_t> RandomSampler::indices(std::int64_t epoch) const {
  at::Generator generator = data::epoch_generator(seed_, epoch);
  if (replacement_) {
    // PyTorch draws 32 at a time. Each number takes the generator's next, so one call gives the
    // same.
    return data::to_indices(
        torch::randint(dataset_size_, {num_samples_}, generator, torch::kInt64));
  }
  std::vector<std::int64_t> order;
  order.reserve(num_samples_);
  for (std::int64_t left = num_samples_; left > 0; left -= std::min(left, dataset_size_)) {
    const torch::Tensor next = torch::randperm(dataset_size_, generator, torch::kInt64);
    const auto* begin = next.const_data_ptr<std::int64_t>();
    order.insert(order.end(), begin, begin + std::min(left, dataset_size_));
  }
  return order;
}

std::string RandomSampler::describe() const {
  return lockstep::str(std::boolalpha, "RandomSampler(dataset_size=", dataset_size_,
                       ", replacement=", replacement_, ", num_samples=", num_samples_,
                       ", seed=", seed_, ")");
}

SubsetRandomSampler::SubsetRandomSampler(std::vector<std::int64_t> indices, std::uint64_t seed)
    : indices_(std::move(indices)), seed_(seed) {
  const auto negative =
      std::find_if(indices_.begin(), indices_.end(), [](std::int64_t index) { return index < 0; });
  if (negative != indices_.end()) {
    throw ConfigError(lockstep::str("SubsetRandomSampler: indices[", negative - indices_.begin(),
                                    "] must be at least 0, got ", *negative));
  }
}

std::vector<std::int64_t> SubsetRandomSampler::indices(std::int64_t epoch) const {
  std::vector<std::int64_t> order = data::random_permutation(size(), seed_, epoch);
  for (std::int64_t& index : order) index = indices_[index];
  return order;
}

std::string SubsetRandomSampler::describe() const {
  return lockstep::str("SubsetRandomSampler(", indices_.size(), " indices with fingerprint ",
                       std::hex, data::fingerprint(std::as_bytes(std::span(indices_))), std::dec,
                       ", seed=", seed_, ")");
}

}  // namespace lockstep
