// Groups a sampler's indices into batches.
//
//   BatchCursor batches(BatchSampler(RandomSampler(dataset.size()), {.batch_size = 32}));
//   for (auto batch = batches.next(); !batch.empty(); batch = batches.next()) train(batch);
//
// A Loader takes the sampler itself and forms the batches. Use this class only in a loop without a
// Loader.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>

namespace lockstep {

struct LOCKSTEP_API BatchSamplerOptions {
  std::int64_t batch_size = 1;
  bool drop_last = false;  ///< Drop a last batch that is smaller than batch_size.
};

/// Like torch.utils.data.BatchSampler. Immutable and thread-safe: the batches depend only on the
/// epoch.
class LOCKSTEP_API BatchSampler {
 public:
  /// Throws a ConfigError if `sampler` is null or batch_size is not positive.
  BatchSampler(std::shared_ptr<const Sampler> sampler, const BatchSamplerOptions& options);
  template <std::derived_from<Sampler> S>
  BatchSampler(S sampler, const BatchSamplerOptions& options)
      : BatchSampler(std::make_shared<const S>(std::move(sampler)), options) {}

  /// All batches of `epoch`, in order.
  std::vector<std::vector<std::int64_t>> batches(std::int64_t epoch) const;
  /// The number of batches in an epoch, which is the same in every epoch.
  std::int64_t size() const;

  const std::shared_ptr<const Sampler>& sampler() const { return sampler_; }
  const BatchSamplerOptions& options() const { return options_; }

 private:
  std::shared_ptr<const Sampler> sampler_;
  BatchSamplerOptions options_;
};

/// A SamplerCursor that returns batches. Its position counts indices, not batches, so that a run
/// can resume with another batch size, for example after the number of ranks changed. Not
/// thread-safe.
class LOCKSTEP_API BatchCursor {
 public:
  explicit BatchCursor(const BatchSampler& sampler)
      : cursor_(sampler.sampler()), options_(sampler.options()) {}

  /// The next batch of the epoch; an empty one at the end of the epoch.
  std::vector<std::int64_t> next();

  void set_epoch(std::int64_t epoch) { cursor_.set_epoch(epoch); }
  SamplerPosition position() const { return cursor_.position(); }
  void restore(const SamplerPosition& position) { cursor_.restore(position); }

 private:
  SamplerCursor cursor_;
  BatchSamplerOptions options_;
};

}  // namespace lockstep
