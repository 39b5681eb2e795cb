// DistributedSampler of sampler.h, in a separate file because it needs LibTorch's generator.
#include <numeric>

#include <lockstep/core/strings.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_checks.h>

namespace lockstep {

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), options_(options) {
  data::check_place("DistributedSampler", dataset_size, options.rank, options.world_size);
}

std::int64_t DistributedSampler::share_size(std::int64_t taken) const {
  const std::int64_t left = dataset_size_ - taken;
  const std::int64_t ranks = options_.world_size;
  return options_.drop_last ? left / ranks : (left + ranks - 1) / ranks;
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  return share(epoch, 0).indices;
}

EpochShare DistributedSampler::share(std::int64_t epoch, std::int64_t taken) const {
  std::vector<std::int64_t> order;
  if (options_.shuffle) {
    order = data::random_permutation(dataset_size_, options_.seed, epoch);
  } else {
    order.resize(dataset_size_);
    std::iota(order.begin(), order.end(), 0);
  }
  // PyTorch pads by repeating the order as often as needed: position p shows order[p mod n].
  const std::int64_t ranks = options_.world_size;
  const std::int64_t end = taken + options_.rank + share_size(taken) * ranks;
  const bool padded = end - ranks >= dataset_size_;
  EpochShare share;
  share.indices.reserve(static_cast<std::size_t>(share_size(taken)));
  for (std::int64_t place = taken + options_.rank; place < end; place += ranks) {
    share.indices.push_back(order[place % dataset_size_]);
    if (padded) share.occurrences.push_back(static_cast<std::uint32_t>(place / dataset_size_));
  }
  return share;
}

std::string DistributedSampler::describe() const {
  return lockstep::str(std::boolalpha, "DistributedSampler(dataset_size=", dataset_size_,
                       ", shuffle=", options_.shuffle, ", seed=", options_.seed,
                       ", drop_last=", options_.drop_last, ")");
}

}  // namespace lockstep
