// The bytes that the stages of a pipeline hold between forwards and backwards, as LibTorch's
// allocators count them.
//
// What an allocator gives out and takes back is reported to the thread that asked for it
// (c10::MemoryReportingInfoBase). The workers hand tensors to each other, so one worker frees what
// another has allocated: all of them report to one list of blocks, which knows a block by its
// address and remembers whose it is.
//
// A stage's activations of a micro-batch are the blocks that its forward allocated and that nobody
// has freed yet, its outputs included. After the first part of a split backward they are also the
// gradients that the second part needs, wherever these were allocated. Left out are temporaries,
// which are gone when the action ends; the batch; gradients of inputs, which are messages; and
// gradients of weights. An output is the next stage's input, and both may need it. It is counted
// once: for the stage that made it, and when that stage's backward has ended, for the next one. On
// ranks the next stage has a copy, which counts as its own.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// The most bytes that activations took at once in a step. They are compared whenever a forward or
/// the first part of a split backward has ended.
struct ActivationBytes {
  std::vector<std::int64_t> stages{};
  std::vector<std::int64_t> workers{};  ///< for each worker, over its stages at the same time
};

namespace pipeline {

/// Thread-safe, apart from begin(). Allocators that report nothing to LibTorch's profiler are not
/// seen. While a thread is watched, a profiler that was started around it does not see its memory.
class ActivationMemory {
 public:
  /// `worker_of` has the worker of each stage.
  explicit ActivationMemory(std::vector<int> worker_of);
  ~ActivationMemory();
  ActivationMemory(const ActivationMemory&) = delete;
  ActivationMemory& operator=(const ActivationMemory&) = delete;

  /// Forgets the step before. No thread may be watched.
  void begin();

  /// As long as it lives, all that its thread, that of `worker`, allocates and frees is reported.
  /// Does nothing if `memory` is null.
  class Watch {
   public:
    Watch(ActivationMemory* memory, int worker);

   private:
    std::optional<c10::DebugInfoGuard> guard_;
  };

  /// The stage and micro-batch that memory belongs to. A stage below 0: it belongs to none.
  struct alignas(2 * sizeof(int)) Owner {  // so aligned, it is loaded and stored as one number
    int stage = -1;
    int micro_batch = 0;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };

  /// As long as it lives, what the watched worker of the owner's stage allocates belongs to
  /// `owner`. Does nothing if `memory` is null.
  class Claim {
   public:
    Claim(ActivationMemory* memory, Owner owner);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    ActivationMemory* const memory_;
    const int stage_;
    const Owner before_;
  };

  /// From now on the memory of `tensors` belongs to `owner`, unless it belongs to somebody already.
  void adopt(Owner owner, const Tensors& tensors);
  /// The memory of those of `tensors` that nobody else holds belongs to no stage any more.
  void give_away(const Tensors& tensors);
  /// Takes down what `stage` and its worker hold now, if it is more than before.
  void note(int stage);
  /// The backward of `owner` has ended: what others still hold is the next stage's.
  void end(Owner owner);

  ActivationBytes peaks() const;

 private:
  class Blocks;
  class Reporter;

  /// From now on the worker of `stage` allocates for `claimed`. Returns the owner before.
  Owner exchange_claim(int stage, Owner claimed);

  const std::vector<int> worker_of_;
  const std::shared_ptr<Blocks> blocks_;              // shared with the reporters
  std::vector<std::shared_ptr<Reporter>> reporters_;  // one for each worker
};

}  // namespace pipeline
}  // namespace lockstep
