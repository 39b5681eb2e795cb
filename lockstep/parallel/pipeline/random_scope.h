// Random numbers of a stage's forward as a function of the step, the stage and the micro-batch.
//
// LibTorch's modules draw from generators that a whole process shares, one for the CPU and one for
// each GPU, and offer no way to give a thread its own. On two threads the draws of two stages would
// mix, differently in each run. So the forward of a stage that draws has the generator to itself,
// seeded for this micro-batch. What it costs: two forwards that draw from one generator do not run
// at the same time, though each runs beside all backwards and beside forwards that do not draw.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

namespace lockstep::pipeline {

/// 64 bits that belong to (step, stage, micro-batch).
std::uint64_t micro_batch_seed(std::uint64_t step_seed, int stage, int micro_batch);

/// Which of LibTorch's default generators a forward draws from.
struct Generators {
  bool cpu = false;
  bool device = false;  ///< that of the stage's device, if it is not the CPU

  bool any() const { return cpu || device; }
};

/// As long as it lives, this thread has the default generators to itself and they begin at `seed`.
/// Afterwards they are as before. Scopes of other threads wait. Draws outside of any scope do not
/// wait and would mix with those inside. Scopes must not be nested on one thread.
class RandomScope {
 public:
  RandomScope(torch::Device device, Generators generators, std::uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  /// The generators of the scope that were drawn from.
  Generators drawn() const;

 private:
  class Turn;
  std::vector<std::unique_ptr<Turn>> turns_;
};

}  // namespace lockstep::pipeline
