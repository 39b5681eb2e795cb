// Makes the random numbers of a stage's forward a function of the step, the stage and the
// micro-batch.
//
// LibTorch's modules draw from process-wide generators, one for the CPU and one for each GPU, and
// there is no way to give a thread its own. On two threads the draws of two stages would
// interleave, differently in each run. The forward of a stage therefore has exclusive use of a
// generator, seeded for its micro-batch, from its first draw until it ends. The cost: two forwards
// that draw from one generator cannot run at the same time, but each can run beside any backward
// and beside forwards that do not draw.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/record_function.h>
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

/// Gives this thread exclusive use of default generators, seeded with `seed`, and restores their
/// state when it is destroyed: of `at_once` from the beginning, and of the CPU's and the device's
/// from the first operator of this thread that draws from them. Scopes on other threads wait.
/// Numbers that a thread takes from a generator without an operator of LibTorch are only noticed
/// where the generator is in `at_once`. Draws outside any scope do not wait and would interleave
/// with draws inside one. Scopes must not be nested on one thread.
class RandomScope {
 public:
  RandomScope(torch::Device device, Generators at_once, std::uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  /// The generators of the scope that have been drawn from.
  Generators drawn() const;

  /// Throws ConfigError if an operator drew from the CPU's generator for the first time while the
  /// scope had the device's. Waiting for it then could deadlock, so the scope did not get it.
  void check() const;

 private:
  class Turn;
  static std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function);
  bool has(torch::Device device) const;
  void take(torch::Device device);

  const torch::Device device_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<Turn>> turns_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
  bool missed_cpu_ = false;
};

}  // namespace lockstep::pipeline
