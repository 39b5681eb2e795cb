// Engines that fill reused buffers in host memory on threads of their own.
#pragma once

#include <functional>
#include <vector>

#include <lockstep/data/loader/batch_ring.h>
#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::data {

/// The request for batch number `batch` of the epoch. The last batch of an epoch may be smaller.
BatchRequest request_of(const detail::LoaderEpoch& epoch, std::int64_t batch,
                        std::int64_t batch_size, std::uint64_t seed);

/// Turns a function that fills one buffer into a LoaderEngine. There is one buffer for each batch
/// that is prepared ahead, and one for the batch that the trainer holds.
class RingEngine final : public detail::LoaderEngine {
 public:
  /// Makes the batch in `buffer`, which belongs to `slot` and still holds the result of the last
  /// call for that slot. Runs on several threads at once, for different slots.
  using Fill = std::function<void(int slot, const BatchRequest& request, LoadedBatch& buffer)>;

  RingEngine(const LoaderOptions& options, Fill fill);

  void start(const detail::LoaderEpoch& epoch) override;
  void stop() override { ring_.stop(); }
  bool next(LoadedBatch& loaded) override;

  /// The number of buffers for these options.
  static int slots(const LoaderOptions& options) {
    return options.threads > 0 ? options.prefetch + 1 : 1;
  }

 private:
  const std::int64_t batch_size_;
  const std::uint64_t seed_;
  const Fill fill_;
  detail::LoaderEpoch epoch_;  // changes only while the ring is stopped
  std::vector<LoadedBatch> buffers_;
  BatchRing ring_;  // last member: its threads end before the state they use is destroyed
};

}  // namespace lockstep::data
