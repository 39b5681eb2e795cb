// Adapts a Lockstep sampler to the data loaders of torch::data.
//
//   TorchDataSampler sampler(DistributedSampler(size, {.rank = rank, .world_size = world_size}));
//   auto loader = torch::data::make_data_loader(dataset, sampler, options);
//   for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto& batch : *loader) train(batch);
//   }
//
// make_data_loader() copies its sampler, so calling set_epoch() on the caller's DistributedSampler
// of torch::data has no effect (pytorch#73141). Copies of this class share the epoch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/data/samplers/base.h>

#include <lockstep/core/export.h>
#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

/// A handle: copies share the sampler, the epoch and the position, so only one loader at a time may
/// use them. A loader with worker threads takes indices ahead of its batches, always from the
/// iterating thread; not thread-safe.
class LOCKSTEP_API TorchDataSampler final : public torch::data::samplers::Sampler<> {
 public:
  /// Begins with epoch 0. Throws a ConfigError if `sampler` is null.
  explicit TorchDataSampler(std::shared_ptr<const lockstep::Sampler> sampler);
  template <std::derived_from<lockstep::Sampler> S>
  explicit TorchDataSampler(S sampler)
      : TorchDataSampler(std::make_shared<const S>(std::move(sampler))) {}

  /// Sets the epoch of the loader's next begin(). Without a call, the loader repeats the same
  /// epoch, as in PyTorch. The first `first` of this rank's indices are left out that time, for a
  /// run that resumes in mid-epoch with the same number of ranks. Throws a ConfigError if the epoch
  /// is negative or has fewer than `first` indices.
  void set_epoch(std::int64_t epoch, std::int64_t first = 0);
  std::int64_t epoch() const;

  /// Called by the loader of torch::data. Throws a ConfigError if `new_size` is not the sampler's
  /// size.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  /// Saves the epoch and the position in it; after load() and reset(), iteration resumes there.
  /// With worker threads the position is ahead of the batches that the loader has returned.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
