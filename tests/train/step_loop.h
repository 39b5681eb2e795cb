// The steps of a training loop, without its loader, for tests of what a step does on a device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/types.h>

#include <lockstep/models/mnist_net.h>
#include <lockstep/train/trainer.h>

namespace lockstep::train {

struct StepCase {
  std::string name;
  std::string strategy = "ddp";
  Precision precision = Precision::k32;
  OptimizerOptions optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9};
};

class StepLoop {
 public:
  StepLoop(const StepCase& given, std::unique_ptr<ClassificationTask> task, ProcessGroup group,
           torch::Device device)
      : strategy_(make_strategy(given.strategy, std::move(group))), task_(std::move(task)) {
    if (given.precision == Precision::kFp16) scaler_.emplace(GradScalerOptions{}, device);
    strategy_->place(task_->module(), device);
    strategy_->attach(
        *task_,
        {.device = device, .precision = given.precision, .scaler = scaler_ ? &*scaler_ : nullptr});
    optimizer_ = strategy_->make_optimizer(given.optimizer);
    if (scaler_) optimizer_->agree_through(*scaler_);
    torch::manual_seed(3);
    batch_ = {.images = torch::randn({4, 1, 28, 28}).to(device),
              .labels = torch::tensor({1, 7, 0, 4}, torch::kInt64).to(device),
              .size = 4};
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }

 private:
  void step() {
    optimizer_->set_lr(0.05);
    optimizer_->zero_grad();
    strategy_->step(batch_, {.weight = 1, .is_last = true}, phases_);
    if (scaler_) scaler_->unscale_(optimizer_->gradients());
    optimizer_->clip_grad_norm(1);
    if (!scaler_) return optimizer_->step();
    if (optimizer_->can_skip_on_device()) {
      scaler_->step_on_device(*optimizer_);
    } else {
      scaler_->step(*optimizer_);
    }
    scaler_->update();
  }

  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<ClassificationTask> task_;
  std::optional<GradScaler> scaler_;
  std::unique_ptr<RunOptimizer> optimizer_;
  Batch batch_;
  PhaseSeconds phases_;
};

/// Each call returns a new net with the same weights.
inline MnistNet same_net() {
  torch::manual_seed(11);
  return MnistNet(MnistNetOptions{.dropout = false, .fused_kernels = false});
}

template <class Task = ClassificationTask>
std::unique_ptr<Task> digits_task() {
  return std::make_unique<Task>(same_net(), ClassificationLoss::kNegativeLogLikelihood);
}

}  // namespace lockstep::train
