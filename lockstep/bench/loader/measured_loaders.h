// Measures how many images per second loaders make.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/bench/loader/settings.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::bench {

/// What was measured for one engine with one number of threads.
struct BenchLoaderRow {
  LoaderEngineKind engine = LoaderEngineKind::kNative;
  int threads = 0;
  std::vector<double> rounds{};  ///< images per second in each round
  /// The rate of copying equal bytes in each round: an upper bound for images in memory. Empty if
  /// images must be decoded, or if batches are made in the memory of a GPU.
  std::vector<double> floors{};
  std::int64_t skipped = 0;  ///< damaged images that were left out, over all rounds
};

/// Takes batches from every loader in turn, like a trainer that needs no time, and returns a row
/// for each: all thread counts of the first engine, then those of the next. A round before the
/// timed ones fills the page cache. After the last round, records what each loader's threads do
/// during twenty batches, if `settings.trace` is given. Throws what the loaders throw.
std::vector<BenchLoaderRow> measure_loaders(const BenchLoaderSettings& settings);

}  // namespace lockstep::bench
