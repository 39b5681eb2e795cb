// Indices drawn by weight, to balance classes of unequal size.
//
//   // Every class equally often: an image's weight is one over its class's number of images.
//   WeightedRandomSampler sampler(weights, {.num_samples = dataset.size(), .seed = 1});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

struct LOCKSTEP_API WeightedRandomSamplerOptions {
  std::optional<std::int64_t> num_samples{};  ///< The default is the number of weights.
  bool replacement = true;                    ///< If false, no index occurs twice in an epoch.
  std::uint64_t seed = 0;
};

/// Equals torch.utils.data.WeightedRandomSampler index for index, with a generator seeded seed +
/// epoch. Draws index i with probability weights[i] / sum(weights), by torch.multinomial in
/// float64. A Loader augments an image anew each time it is drawn.
class LOCKSTEP_API WeightedRandomSampler : public Sampler {
 public:
  /// Throws a ConfigError if there are no weights or more than 2^24 (multinomial's limit), one is
  /// negative or not finite, all are zero, their sum is not finite, num_samples is not positive,
  /// or, without replacement, num_samples exceeds the number of weights above zero.
  explicit WeightedRandomSampler(std::vector<double> weights,
                                 const WeightedRandomSamplerOptions& options = {});

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return num_samples_; }
  std::string describe() const override;
  bool may_repeat() const override { return replacement_; }

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
  std::uint64_t seed_;
};

}  // namespace lockstep
