#include <lockstep/data/sampler.h>

#include <numeric>

#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/sampler_checks.h>

namespace lockstep {

std::string Sampler::describe() const { return str("Sampler(size=", size(), ")"); }

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

std::string EvaluationSampler::describe() const {
  return str("EvaluationSampler(dataset_size=", dataset_size_, ")");
}

}  // namespace lockstep
