// Makes the random numbers of a stage's forward a function of the step, the stage and the
// micro-batch.
//
// LibTorch's modules draw from process-wide generators, one for the CPU and one for each GPU, and
// there is no way to give a thread its own. On two threads the draws of two stages would
// interleave, differently in each run. The forward of a stage that draws therefore has exclusive
// use of the generator, seeded for its micro-batch. The cost: two forwards that draw from one
// generator cannot run at the same time, but each can run beside any backward and beside forwards
// that do not draw.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

namespace lockstep::pipeline {

/// The 64-bit seed of (step, stage, micro-batch).
std::uint64_t micro_batch_seed(std::uint64_t step_seed, int stage, int micro_batch);

/// Which of LibTorch's default generators a forward draws from.
struct Generators {
  bool cpu = false;
  bool device = false;  ///< the generator of the stage's device, if that is not the CPU

  bool any() const { return cpu || device; }
};

/// Gives this thread exclusive use of the default generators, seeded with `seed`, and restores
/// their state when it is destroyed. Scopes on other threads wait. Draws outside any scope do not
/// wait and would interleave with draws inside one. Scopes must not be nested on one thread.
class RandomScope {
 public:
  RandomScope(torch::Device device, Generators generators, std::uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  /// The generators of the scope that have been drawn from.
  Generators drawn() const;

 private:
  class Turn;
  std::vector<std::unique_ptr<Turn>> turns_;
};

}  // namespace lockstep::pipeline
