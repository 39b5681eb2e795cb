// What is trained: a module and the meaning of a batch for it.
#pragma once

#include <functional>
#include <memory>

#include <torch/nn/module.h>

#include <lockstep/data/loader.h>
#include <lockstep/train/metrics.h>

namespace lockstep {

/// The Trainer calls a task from one thread. Steps run on the device of the batch's tensors.
class Task {
 public:
  virtual ~Task() = default;
  virtual torch::nn::Module& module() = 0;
  /// The mean loss over the batch, a scalar to call backward() on.
  virtual torch::Tensor training_step(const Batch& batch) = 0;
  /// Adds the batch's loss, correct answers and samples. Called without gradients, in eval mode.
  virtual void evaluation_step(const Batch& batch, MetricSums& sums) = 0;
};

enum class ClassificationLoss {
  kCrossEntropy,           ///< the module returns logits
  kNegativeLogLikelihood,  ///< the module returns log-probabilities
};

/// Classifies images: any module whose forward takes a float [N, C, H, W] and returns [N, classes].
///
///   ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
class ClassificationTask : public Task {
 public:
  /// `net` is a module holder (made by TORCH_MODULE); the task shares its module.
  template <class ModuleHolder>
  ClassificationTask(ModuleHolder net, ClassificationLoss loss)
      : module_(net.ptr()),
        forward_([net](const torch::Tensor& images) mutable { return net->forward(images); }),
        loss_(loss) {}

  torch::nn::Module& module() override { return *module_; }
  torch::Tensor training_step(const Batch& batch) override;
  void evaluation_step(const Batch& batch, MetricSums& sums) override;

 private:
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels,
                     at::Reduction::Reduction reduction) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::function<torch::Tensor(const torch::Tensor&)> forward_;
  ClassificationLoss loss_;
};

}  // namespace lockstep
