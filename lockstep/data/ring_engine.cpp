#include <lockstep/data/ring_engine.h>

#include <algorithm>
#include <utility>

namespace lockstep {

RingEngine::RingEngine(const LoaderOptions& options, Fill fill)
    : batch_size_(options.batch_size),
      fill_(std::move(fill)),
      buffers_(slots(options)),
      ring_(
          [this](int slot, std::int64_t batch) {
            buffers_[slot].skipped.clear();
            fill_(slot, request(batch), buffers_[slot]);
          },
          {.threads = options.threads, .slots = slots(options), .cpus = options.cpus}) {}

BatchRequest RingEngine::request(std::int64_t batch) const {
  const std::int64_t place = epoch_.first + batch * batch_size_;
  const std::int64_t left = static_cast<std::int64_t>(epoch_.indices.size()) - place;
  return {.epoch = epoch_.epoch,
          .place = place,
          .indices = epoch_.indices.subspan(place, std::min(batch_size_, left))};
}

void RingEngine::start(const LoaderEpoch& epoch) {
  ring_.stop();
  epoch_ = epoch;
  ring_.start(0, epoch.batches);
}

bool RingEngine::next(LoadedBatch& loaded) {
  const std::optional<int> slot = ring_.next();
  if (slot) loaded = buffers_[*slot];
  return slot.has_value();
}

}  // namespace lockstep
