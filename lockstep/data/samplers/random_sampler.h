// Random orders of a data set, or of a part of it, for one process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

struct LOCKSTEP_API RandomSamplerOptions {
  bool replacement = false;  ///< Draw each index independently, so that some repeat.
  std::optional<std::int64_t> num_samples{};  ///< The default is the data set's size.
  std::uint64_t seed = 0;
};

/// Equals torch.utils.data.RandomSampler index for index, with a generator seeded seed + epoch.
/// Without replacement, and with more samples than the data set has, it returns one complete order
/// after the other.
class LOCKSTEP_API RandomSampler : public Sampler {
 public:
  /// Throws a ConfigError if the data set is empty or num_samples is not positive.
  explicit RandomSampler(std::int64_t dataset_size, const RandomSamplerOptions& options = {});

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return num_samples_; }
  std::string describe() const override;
  bool may_repeat() const override { return replacement_ || num_samples_ > dataset_size_; }

 private:
  std::int64_t dataset_size_;
  std::int64_t num_samples_;
  bool replacement_;
  std::uint64_t seed_;
};

/// The given indices, in a different order each epoch. Equals torch.utils.data.SubsetRandomSampler
/// index for index, with a generator seeded seed + epoch.
class LOCKSTEP_API SubsetRandomSampler : public Sampler {
 public:
  /// Throws a ConfigError if an index is negative.
  explicit SubsetRandomSampler(std::vector<std::int64_t> indices, std::uint64_t seed = 0);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  std::string describe() const override;

 private:
  std::vector<std::int64_t> indices_;
  std::uint64_t seed_;
};

}  // namespace lockstep
