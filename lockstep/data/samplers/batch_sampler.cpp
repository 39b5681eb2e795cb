#include <lockstep/data/samplers/batch_sampler.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

BatchSampler::BatchSampler(std::shared_ptr<const Sampler> sampler,
                           const BatchSamplerOptions& options)
    : sampler_(std::move(sampler)), options_(options) {
  const OptionCheck check("BatchSampler");
  check.at_least("batch_size", static_cast<double>(options.batch_size), 1);
  if (!sampler_) throw ConfigError("BatchSampler: got no sampler");
}

std::vector<std::vector<std::int64_t>> BatchSampler::batches(std::int64_t epoch) const {
  std::vector<std::vector<std::int64_t>> batches;
  batches.reserve(size());
  BatchCursor cursor(*this);
  cursor.set_epoch(epoch);
  for (auto batch = cursor.next(); !batch.empty(); batch = cursor.next()) {
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::int64_t BatchSampler::size() const {
  const std::int64_t whole = sampler_->size() / options_.batch_size;
  const bool rest = sampler_->size() % options_.batch_size != 0;
  return rest && !options_.drop_last ? whole + 1 : whole;
}

std::vector<std::int64_t> BatchCursor::next() {
  if (options_.drop_last && cursor_.remaining() < options_.batch_size) return {};
  return cursor_.next(options_.batch_size);
}

}  // namespace lockstep
