// The memory that the stages of a pipeline hold between forwards and backwards, in bytes as counted
// by LibTorch's allocators.
//
// An allocator reports each allocation and release to the thread that asked for it
// (c10::MemoryReportingInfoBase). The workers hand tensors to each other, so one worker frees what
// another has allocated. All of them therefore report to one list of blocks, which identifies a
// block by its address and remembers its owner.
//
// A stage's activations of a micro-batch are the blocks that its forward allocated and that are not
// yet freed, its outputs included. After the first part of a split backward, the gradients that the
// second part needs also count, wherever they were allocated. Not counted are temporaries, which
// are gone when the action ends; the batch; gradients of inputs, which are messages; and gradients
// of weights. An output is also the next stage's input, and both may need it. It is counted once:
// for the stage that made it and, after that stage's backward has ended, for the next stage.
// Between ranks the next stage has a copy, which counts as its own.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// The peak bytes of activations in a step, measured whenever a forward or the first part of a
/// split backward has ended.
struct LOCKSTEP_API ActivationBytes {
  std::vector<std::int64_t> stages{};
  std::vector<std::int64_t> workers{};  ///< for each worker, the peak over the sum of its stages
};

namespace pipeline {

/// Thread-safe, except for begin(). Allocators that do not report to LibTorch's profiler are not
/// counted. While a thread is watched, a profiler started around it does not see the thread's
/// memory.
class LOCKSTEP_API ActivationMemory {
 public:
  /// `worker_of[s]` is the worker of stage s.
  explicit ActivationMemory(std::vector<int> worker_of);
  ~ActivationMemory();
  ActivationMemory(const ActivationMemory&) = delete;
  ActivationMemory& operator=(const ActivationMemory&) = delete;

  /// Forgets the previous step. No thread may be watched.
  void begin();

  /// While it lives, reports all memory that the thread that made it, the thread of `worker`,
  /// allocates and frees. No-op if `memory` is null.
  class Watch {
   public:
    Watch(ActivationMemory* memory, int worker);

   private:
    std::optional<c10::DebugInfoGuard> guard_;
  };

  /// The stage and micro-batch that memory belongs to. A negative stage means no owner.
  struct alignas(2 * sizeof(int)) Owner {  // aligned so that it is loaded and stored as one number
    int stage = -1;
    int micro_batch = 0;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };

  /// While it lives, assigns to `owner` all memory that the worker of the owner's stage allocates.
  /// No-op if `memory` is null.
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

  /// Assigns the memory of `tensors` to `owner`, unless it already has an owner.
  void adopt(Owner owner, const Tensors& tensors);
  /// Removes the owner of the memory of each tensor in `tensors` that nothing else holds.
  void give_away(const Tensors& tensors);
  /// Records what `stage` and its worker hold now, if it exceeds their peak.
  void note(int stage);
  /// Ends the backward of `owner`: memory that is still held belongs to the next stage from now on.
  void end(Owner owner);

  ActivationBytes peaks() const;

 private:
  class Blocks;
  class Reporter;

  /// From now on the worker of `stage` allocates for `claimed`. Returns the previous owner.
  Owner exchange_claim(int stage, Owner claimed);

  const std::vector<int> worker_of_;
  const std::shared_ptr<Blocks> blocks_;              // shared with the reporters
  std::vector<std::shared_ptr<Reporter>> reporters_;  // one for each worker
};

}  // namespace pipeline
}  // namespace lockstep
