#include <lockstep/data/sampler.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <numeric>

#include <lockstep/core/options.h>

namespace lockstep {
namespace {

void check_place(const char* owner, std::int64_t dataset_size, int rank, int world_size) {
  const OptionCheck check(owner);
  check.at_least("dataset_size", static_cast<double>(dataset_size), 0);
  check.at_least("world_size", world_size, 1);
  check.in_range("rank", rank, 0, world_size - 1);
}

std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::Tensor order = torch::randperm(size, generator, torch::kInt64);
  const auto* begin = order.const_data_ptr<std::int64_t>();
  return {begin, begin + size};
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), options_(options) {
  check_place("DistributedSampler", dataset_size, options.rank, options.world_size);
  const std::int64_t world = options.world_size;
  size_ = options.drop_last ? dataset_size / world : (dataset_size + world - 1) / world;
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  std::vector<std::int64_t> order(dataset_size_);
  if (options_.shuffle) {
    order = random_permutation(dataset_size_, options_.seed + static_cast<std::uint64_t>(epoch));
  } else {
    std::iota(order.begin(), order.end(), 0);
  }
  // PyTorch pads with the order repeated as often as it takes: position p shows order[p mod n].
  std::vector<std::int64_t> mine(size_);
  for (std::int64_t i = 0; i < size_; ++i) {
    mine[i] = order[(options_.rank + i * options_.world_size) % dataset_size_];
  }
  return mine;
}

EvaluationSampler::EvaluationSampler(std::int64_t dataset_size, int rank, int world_size)
    : dataset_size_(dataset_size), rank_(rank), world_size_(world_size) {
  check_place("EvaluationSampler", dataset_size, rank, world_size);
}

std::vector<std::int64_t> EvaluationSampler::indices(std::int64_t) const {
  std::vector<std::int64_t> mine(size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = rank_ + static_cast<std::int64_t>(i) * world_size_;
  }
  return mine;
}

std::int64_t EvaluationSampler::size() const {
  return dataset_size_ > rank_ ? (dataset_size_ - rank_ + world_size_ - 1) / world_size_ : 0;
}

}  // namespace lockstep
