// Parameters that several stages of a pipeline share: the same tensor, registered in each of them.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include <torch/types.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

namespace pipeline {

/// Adds the gradients of tied parameters as one process does that accumulates the same
/// micro-batches: within a micro-batch the engine first adds up all uses, the latest first, which
/// is the last stage's last one; then the sum is added to .grad, micro-batch after micro-batch. So
/// the stages hand their gradients over here, use by use, and a sum is made when the last stage has
/// handed over; until then the gradients of the earlier ones are held. Stages that share a tensor
/// share its device. Thread-safe, except for begin().
class TiedParameters {
 public:
  /// `parameters[s]` are those of stage s. Whether one requires a gradient may change between
  /// steps.
  explicit TiedParameters(const std::vector<Tensors>& parameters);

  /// The parameters of `stage` that other stages have, too.
  const Tensors& of(int stage) const { return of_[static_cast<std::size_t>(stage)]; }

  /// Whether any stage shares a parameter that now requires a gradient with another one.
  bool any_requires_grad() const;

  /// Begins a step, and drops what a failed step before has left.
  void begin(int micro_batches);

  /// Stage `stage` has computed its part for `micro_batch`: gradients[k] has those of the uses of
  /// of(stage)[k], as StageBackward::take_tied_gradients() returns them. Every stage with tied
  /// parameters calls it once for every micro-batch. May throw what a hook of the parameter throws.
  void add(int stage, int micro_batch, std::vector<Tensors> gradients);

 private:
  struct Tied {
    torch::Tensor parameter;
    std::size_t stages = 0;  ///< that share it
    /// For each micro-batch the gradients by stage.
    std::vector<std::map<int, Tensors>> arrived{};
    std::size_t next = 0;  ///< the micro-batch whose sum is due
  };
  static void accumulate(const torch::Tensor& parameter, const std::map<int, Tensors>& gradients);

  std::mutex mutex_;
  std::vector<Tied> tied_;
  std::vector<Tensors> of_;                       // for each stage
  std::vector<std::vector<std::size_t>> places_;  // for each of these its place in tied_
};

}  // namespace pipeline
}  // namespace lockstep
