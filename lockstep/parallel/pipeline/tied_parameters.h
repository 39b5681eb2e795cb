// Parameters that several stages of a pipeline share: one tensor, registered in each of them.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include <torch/types.h>

namespace lockstep::pipeline {

using Tensors = std::vector<torch::Tensor>;

/// Accumulates the gradients of tied parameters in the order in which a single process would
/// accumulate the same micro-batches. Within a micro-batch the engine adds up all uses, latest
/// first, starting with the last use in the last stage; the sums are then added to .grad in the
/// order of the micro-batches. To reproduce this, each stage hands over the gradients of its uses
/// separately. They are held until all stages have handed over theirs, and are then summed. Stages
/// that share a tensor share its device. Thread-safe, except for begin().
class TiedParameters {
 public:
  /// `parameters[s]` are the parameters of stage s. Their requires_grad may change between steps.
  explicit TiedParameters(const std::vector<Tensors>& parameters);

  /// The parameters of `stage` that other stages also have.
  const Tensors& of(int stage) const { return of_[static_cast<std::size_t>(stage)]; }

  /// Whether any parameter that now requires a gradient is shared between stages.
  bool any_requires_grad() const;

  /// Begins a step and drops what a failed previous step left behind.
  void begin(int micro_batches);

  /// Hands over the gradients of `stage` for `micro_batch`: gradients[k] are those of the uses of
  /// of(stage)[k], as returned by StageBackward::take_tied_gradients(). Every stage with tied
  /// parameters calls it once per micro-batch. Exceptions thrown by a parameter's hook propagate.
  void add(int stage, int micro_batch, std::vector<Tensors> gradients);

 private:
  struct Tied {
    torch::Tensor parameter;
    std::size_t stages = 0;  ///< the number of stages that share it
    /// For each micro-batch, the gradients by stage.
    std::vector<std::map<int, Tensors>> arrived{};
    std::size_t next = 0;  ///< the next micro-batch to be summed
  };
  static void accumulate(const torch::Tensor& parameter, const std::map<int, Tensors>& gradients);

  std::mutex mutex_;
  std::vector<Tied> tied_;
  std::vector<Tensors> of_;                       // for each stage
  std::vector<std::vector<std::size_t>> places_;  // for each entry of of_, its index in tied_
};

}  // namespace lockstep::pipeline
