#include <lockstep/data/loader/ring_engine.h>

#include <algorithm>
#include <utility>

namespace lockstep::data {

RingEngine::RingEngine(const LoaderOptions& options, Fill fill)
    : batch_size_(options.batch_size),
      seed_(options.seed),
      fill_(std::move(fill)),
      buffers_(slots(options)),
      ring_(
          [this](int slot, std::int64_t batch) {
            buffers_[slot].skipped.clear();
            fill_(slot, request_of(epoch_, batch, batch_size_, seed_), buffers_[slot]);
          },
          {.threads = options.threads, .slots = slots(options), .cpus = options.cpus}) {}

BatchRequest request_of(const detail::LoaderEpoch& epoch, std::int64_t batch,
                        std::int64_t batch_size, std::uint64_t seed) {
  const std::int64_t place = batch * batch_size;
  const std::int64_t left = static_cast<std::int64_t>(epoch.indices.size()) - place;
  const std::int64_t count = std::min(batch_size, left);
  return {.seed = seed,
          .epoch = epoch.epoch,
          .indices = epoch.indices.subspan(place, count),
          .occurrences = epoch.occurrences.empty() ? epoch.occurrences
                                                   : epoch.occurrences.subspan(place, count)};
}

void RingEngine::start(const detail::LoaderEpoch& epoch) {
  ring_.stop();
  epoch_ = epoch;
  ring_.start(0, epoch.batches);
}

bool RingEngine::next(LoadedBatch& loaded) {
  const std::optional<int> slot = ring_.next();
  if (slot) loaded = buffers_[*slot];
  return slot.has_value();
}

}  // namespace lockstep::data
