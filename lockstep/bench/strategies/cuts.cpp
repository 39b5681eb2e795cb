#include <lockstep/bench/strategies/cuts.h>

#include <algorithm>

#include <ATen/Parallel.h>

#include <lockstep/bench/strategies/work.h>

namespace lockstep::bench {

void balance_strategy_stages(const BenchStrategiesSettings& settings,
                             const std::vector<int>& counts, SharedPlaces<SharedNote>& notes) {
  at::set_num_threads(std::max(1, settings.work.threads / 2));
  const std::int64_t samples =
      std::max<std::int64_t>(1, settings.work.batch / settings.work.micro_batches);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    notes.at(static_cast<int>(i))
        .set(note_of(balanced_cuts(settings.model, settings.image_size, samples, counts[i])));
  }
}

}  // namespace lockstep::bench
