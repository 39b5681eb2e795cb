// Finds steps whose loss or gradients are not finite: TrainerOptions::on_nan. Internal to
// lockstep/train.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/train/optimization/on_nan.h>

namespace lockstep::train {

/// Use it on one thread only.
class FiniteSteps {
 public:
  struct Step {
    torch::Tensor loss{};                  ///< this rank's
    std::function<Tensors()> gradients{};  ///< empty: they are not looked at
    std::string place{};                   ///< "step 3 of epoch 2 (step 15 of the run)"
  };

  /// `device` is one that the group can send from.
  FiniteSteps(OnNan policy, torch::Device device) : policy_(policy), device_(device) {}

  /// Whether a step may be skipped, which begin_step() prepares.
  bool skips() const { return policy_ == OnNan::kSkip; }
  /// Called before the first forward of a step of `module` if skips().
  void begin_step(const torch::nn::Module& module);
  /// Collective. Called after the last backward, with kStop and kSkip. Whether the optimizer may
  /// step; otherwise the module's buffers are those before the step. Throws an Error with kStop.
  bool allows(const Step& step, ProcessGroup& group);
  /// Warns of `loss` if it is the first that is not finite. `place` is as in Step.
  void note(double loss, const std::string& place);

  std::int64_t skipped() const { return skipped_; }
  /// The time that allows() has spent on telling the other ranks, and on waiting for them.
  double communication_seconds() const { return communication_seconds_; }

 private:
  // What is not finite, and on which rank; empty if everything is.
  std::string problem_in(const Step& step, ProcessGroup& group);

  struct SavedBuffer {
    torch::Tensor buffer;
    torch::Tensor before;
  };

  const OnNan policy_;
  const torch::Device device_;
  std::vector<SavedBuffer> buffers_;  // with kSkip
  std::int64_t skipped_ = 0;
  double communication_seconds_ = 0;
  bool warned_ = false;
};

}  // namespace lockstep::train
