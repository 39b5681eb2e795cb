// What a Trainer trains: a module, and what it does with a batch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metrics.h>

namespace lockstep {

/// The Trainer calls a task from one thread. Steps run on the device of the batch's tensors.
///
/// Each module trains in the mode, train() or eval(), that it has when training begins, and has it
/// again after every evaluation, which runs in eval mode.
class LOCKSTEP_API Task {
 public:
  virtual ~Task() = default;
  virtual torch::nn::Module& module() = 0;
  /// Called once by each fit(), on every rank, before the first step: the module is in its place
  /// and has its state, and the sanity check of the evaluation is over. Not called by a resumed run
  /// that is already complete. It may call train() and eval() on the module or parts of it, as for
  /// frozen batch normalisation; parameters must be frozen before fit(). It must not communicate
  /// with other ranks. Lightning's on_train_start.
  virtual void on_train_start() {}
  /// The mean loss over the batch, a scalar to call backward() on.
  virtual torch::Tensor training_step(const Batch& batch) = 0;
  /// Adds the results of the batch: metrics.add("loss", mean_loss, batch.size) and any others.
  /// Called without gradients, in eval mode.
  virtual void evaluation_step(const Batch& batch, Metrics& metrics) = 0;
  /// Metrics with a state of their own. The Trainer resets them before each evaluation, and reduces
  /// and reads them after it. The task passes them each batch with Metrics::update(), or by calling
  /// their own functions.
  virtual std::vector<MetricPtr> metrics() { return {}; }
  /// Returns a picture of the module's output for `samples`: a few of the images that rank 0
  /// evaluates, the same in every epoch. Called on rank 0 at the end of epochs with an evaluation,
  /// without gradients, in eval mode, and only if a listener accepts pictures. Returns std::nullopt
  /// if there is none. It must not communicate with other ranks.
  virtual std::optional<RunPicture> picture(const Batch& /*samples*/) { return std::nullopt; }
};

/// A task whose loss is a function of its module's output. Strategies that compute with copies or
/// parts of the module need an OutputTask: they call its functions instead of training_step() and
/// evaluation_step().
///
/// The const functions may be called from several threads at once, with different modules.
class LOCKSTEP_API OutputTask : public Task {
 public:
  /// The output of `module`, which is the task's own or a copy of it, for a batch's images.
  virtual torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const = 0;
  /// The `labels` passed to loss() and evaluate(), with the batch's samples in the first dimension:
  /// the batch's labels, or for an auto-encoder its images.
  virtual torch::Tensor targets(const Batch& batch) const { return batch.labels; }
  /// The mean loss over the samples, a tensor without dimensions. `output` and `labels` are on one
  /// device.
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const = 0;
  /// Adds the results of the samples, as evaluation_step() does.
  virtual void evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                        Metrics& metrics) const = 0;

  /// The module as `count` stages that share its submodules, in forward order. Throws ConfigError
  /// if the module cannot be divided, or not into this many stages.
  virtual std::vector<pipeline::StageModule> stages(int count) const;

  torch::Tensor training_step(const Batch& batch) override;
  void evaluation_step(const Batch& batch, Metrics& metrics) override;
};

enum class ClassificationLoss {
  kCrossEntropy,           ///< the module returns logits
  kNegativeLogLikelihood,  ///< the module returns log-probabilities
};

/// Classifies images: any module whose forward takes a float [N, C, H, W] and returns [N, classes].
///
///   ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
class LOCKSTEP_API ClassificationTask : public OutputTask {
 public:
  /// Divides the task's module into stages.
  using Cut = std::function<std::vector<pipeline::StageModule>(int stages)>;

  /// `net` is a module holder (made by TORCH_MODULE); the task shares its module. Without `cut`,
  /// the task cannot be divided into stages.
  template <class ModuleHolder>
  ClassificationTask(ModuleHolder net, ClassificationLoss loss, Cut cut = {})
      : module_(net.ptr()),
        forward_([](torch::nn::Module& module, const torch::Tensor& images) -> torch::Tensor {
          return dynamic_cast<typename ModuleHolder::ContainedType&>(module).forward(images);
        }),
        loss_(loss),
        cut_(std::move(cut)) {}

  torch::nn::Module& module() override { return *module_; }
  torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const override {
    return forward_(module, images);
  }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override;
  /// The loss of each sample, float32 [N].
  torch::Tensor sample_losses(const torch::Tensor& output, const torch::Tensor& labels) const;
  /// The probabilities of the classes, float32 [N, classes].
  torch::Tensor probabilities(const torch::Tensor& output) const;
  /// Adds the loss and the accuracy, and updates the metrics of add_metric().
  void evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                Metrics& metrics) const override;
  std::vector<pipeline::StageModule> stages(int count) const override;

  /// Adds `metric` to the evaluations. Call it before Trainer::fit(), with the same metrics on all
  /// ranks.
  void add_metric(MetricPtr metric) { metrics_.push_back(std::move(metric)); }
  std::vector<MetricPtr> metrics() override { return metrics_; }

 private:
  torch::Tensor reduced_loss(const torch::Tensor& output, const torch::Tensor& labels,
                             at::Reduction::Reduction reduction) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)> forward_;
  ClassificationLoss loss_;
  Cut cut_;
  std::vector<MetricPtr> metrics_;
};

}  // namespace lockstep
