// Lets the data loaders of torch::data take their indices from a Lockstep sampler.
//
//   TorchDataSampler sampler(DistributedSampler(size, {.rank = rank, .world_size = world_size}));
//   auto loader = torch::data::make_data_loader(dataset, sampler, options);
//   for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto& batch : *loader) train(batch);
//   }
//
// make_data_loader() copies its sampler, so that set_epoch() on the caller's DistributedSampler of
// torch::data changes nothing (pytorch#73141). The copies of this one share the epoch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/data/samplers/base.h>

#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

/// A handle: copies share the sampler, the epoch and the walk through it, so one loader at a time
/// may use them. A loader with worker threads takes indices ahead of its batches, always from the
/// thread that iterates; not thread-safe.
class TorchDataSampler final : public torch::data::samplers::Sampler<> {
 public:
  /// Begins with epoch 0. ConfigError without a sampler.
  explicit TorchDataSampler(std::shared_ptr<const lockstep::Sampler> sampler);
  template <std::derived_from<lockstep::Sampler> S>
  explicit TorchDataSampler(S sampler)
      : TorchDataSampler(std::make_shared<const S>(std::move(sampler))) {}

  /// Which epoch the loader's next begin() walks through; without a call the same one again, as in
  /// PyTorch. The first `first` of this rank's indices are left out that time, for a run that goes
  /// on in mid-epoch with as many ranks. ConfigError when the epoch is negative or has not as many.
  void set_epoch(std::int64_t epoch, std::int64_t first = 0);
  std::int64_t epoch() const;

  /// For torch::data: its loader calls them. ConfigError for a `new_size` other than the sampler's.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  /// The epoch, and the place in it: load() and then reset() go on there. With worker threads the
  /// place is ahead of the batches that were given.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
