// DistributedSampler of sampler.h: apart, for it needs LibTorch's generator.
#include <numeric>

#include <lockstep/core/strings.h>
#include <lockstep/data/epoch_generator.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/sampler_checks.h>

namespace lockstep {

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), options_(options) {
  check_place("DistributedSampler", dataset_size, options.rank, options.world_size);
  const std::int64_t world = options.world_size;
  size_ = options.drop_last ? dataset_size / world : (dataset_size + world - 1) / world;
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  std::vector<std::int64_t> order;
  if (options_.shuffle) {
    order = random_permutation(dataset_size_, options_.seed, epoch);
  } else {
    order.resize(dataset_size_);
    std::iota(order.begin(), order.end(), 0);
  }
  // PyTorch pads with the order repeated as often as it takes: position p shows order[p mod n].
  std::vector<std::int64_t> mine(size_);
  for (std::int64_t i = 0; i < size_; ++i) {
    mine[i] = order[(options_.rank + i * options_.world_size) % dataset_size_];
  }
  return mine;
}

std::string DistributedSampler::describe() const {
  return lockstep::str(std::boolalpha, "DistributedSampler(dataset_size=", dataset_size_,
                       ", shuffle=", options_.shuffle, ", seed=", options_.seed,
                       ", drop_last=", options_.drop_last, ")");
}

}  // namespace lockstep
