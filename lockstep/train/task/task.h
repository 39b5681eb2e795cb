// What a Trainer trains: a module, and what it does with a batch.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/batch_structure.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metrics.h>
#include <lockstep/train/task/optimizer_configuration.h>

namespace lockstep {

namespace detail {

/// The interface of a BatchTask that does not depend on the type of its batches.
class LOCKSTEP_API TaskBase {
 public:
  virtual ~TaskBase() = default;
  virtual torch::nn::Module& module() = 0;
  /// Called once by each fit(), on every rank, before the first step: the module is in its place
  /// and has its state, and the sanity check of the evaluation is over. Not called by a resumed run
  /// that is already complete. It may call train() and eval() on the module or parts of it, as for
  /// frozen batch normalisation; parameters must be frozen before fit(). It must not communicate
  /// with other ranks. Lightning's on_train_start.
  virtual void on_train_start() {}
  /// Metrics with a state of their own. The Trainer resets them before each evaluation, and reduces
  /// and reads them after it. The task passes them each batch with Metrics::update(), or by calling
  /// their own functions.
  virtual std::vector<MetricPtr> metrics() { return {}; }
  /// The optimizers of the run; optimizer_configuration.h has examples. Called once by each fit(),
  /// on every rank, before the module is moved. An empty list stands for one optimizer of all
  /// trainable parameters with TrainerOptions::optimizer; otherwise that option is ignored, and
  /// each trainable parameter must belong to exactly one group of one optimizer.
  virtual std::vector<ConfiguredOptimizer> configure_optimizers() { return {}; }

  /// The index in configure_optimizers() of the optimizer whose step this is; 0 if there is only
  /// one. The Trainer sets it before training_step().
  std::size_t optimizer_index() const { return optimizer_index_; }
  void set_optimizer_index(std::size_t index) { optimizer_index_ = index; }

  // Implemented by BatchTask. `batch` holds a batch of the task's type.
  virtual torch::Tensor loaded_training_step(const LoadedBatch& batch) = 0;
  virtual void loaded_evaluation_step(const LoadedBatch& batch, Metrics& metrics) = 0;
  virtual std::int64_t loaded_batch_size(const LoadedBatch& batch) const = 0;
  /// A copy of the samples to pass to loaded_picture().
  virtual LoadedBatch loaded_samples(const LoadedBatch& batch) const = 0;
  virtual std::optional<RunPicture> loaded_picture(const LoadedBatch& samples) = 0;

 private:
  std::size_t optimizer_index_ = 0;
};

/// A visitor for for_each_tensor(): the size of the first dimension of the first tensor that has
/// dimensions.
class LOCKSTEP_API FirstSize {
 public:
  void operator()(const torch::Tensor& tensor) {
    if (!size_ && tensor.defined() && tensor.dim() > 0) size_ = tensor.size(0);
  }
  /// Throws ConfigError if no tensor has dimensions.
  std::int64_t value() const;

 private:
  std::optional<std::int64_t> size_{};
};
/// Copies of the first `count` samples of each tensor; with 0, of whole tensors.
LOCKSTEP_API LoadedBatch copy_of_samples(const LoadedBatch& batch, std::int64_t count);

}  // namespace detail

/// A task whose batches have type B: a struct of tensors, structs in structs, a tuple, or anything
/// else that for_each_tensor() accepts.
///
///   struct Sample { torch::Tensor image, pose, mask; };
///   class Segmentation final : public BatchTask<Sample> {
///    public:
///     torch::nn::Module& module() override { return *net_; }
///     torch::Tensor training_step(const Sample& batch) override {
///       return loss(net_->forward(batch.image, batch.pose), batch.mask);
///     }
///     ...
///
/// The Trainer calls a task from one thread. Steps run on the device of the batch's tensors.
///
/// Each module trains in the mode, train() or eval(), that it has when training begins, and has it
/// again after every evaluation, which runs in eval mode.
template <BatchOfTensors B>
class LOCKSTEP_API BatchTask : public detail::TaskBase {
 public:
  using BatchType = B;

  /// The mean loss over the batch, a scalar to call backward() on. With several optimizers,
  /// optimizer_index() says whose loss it is.
  virtual torch::Tensor training_step(const B& batch) = 0;
  /// Adds the results of the batch: metrics.add("loss", mean_loss, batch_size(batch)) and any
  /// others. Called without gradients, in eval mode.
  virtual void evaluation_step(const B& batch, Metrics& metrics) = 0;
  /// The number of samples in `batch`, by which reports weight its loss and count its samples. By
  /// default Batch::size, and for other types the size of the first dimension of the first tensor.
  virtual std::int64_t batch_size(const B& batch) const {
    if constexpr (std::same_as<B, Batch>) {
      return batch.size;
    } else {
      // FirstSize changes nothing, but a program's each_tensor() need not accept a const batch.
      detail::FirstSize first;
      for_each_tensor(const_cast<B&>(batch), first);
      return first.value();
    }
  }
  /// Returns a picture of the module's output for `samples`: samples that rank 0 evaluates, the
  /// same in every epoch; a few images of a Batch, or the first batch of another type. Called on
  /// rank 0 at the end of epochs with an evaluation, without gradients, in eval mode, and only if a
  /// listener accepts pictures. Returns std::nullopt if there is none. It must not communicate with
  /// other ranks.
  virtual std::optional<RunPicture> picture(const B& /*samples*/) { return std::nullopt; }

  torch::Tensor loaded_training_step(const LoadedBatch& batch) final {
    return training_step(batch.batch<B>());
  }
  void loaded_evaluation_step(const LoadedBatch& batch, Metrics& metrics) final {
    evaluation_step(batch.batch<B>(), metrics);
  }
  std::int64_t loaded_batch_size(const LoadedBatch& batch) const final {
    return batch_size(batch.batch<B>());
  }
  LoadedBatch loaded_samples(const LoadedBatch& batch) const final {
    if constexpr (std::same_as<B, Batch>) {
      constexpr std::int64_t kPictureSamples = 8;
      Batch samples = batch.batch<Batch>();
      samples.size = std::min(samples.size, kPictureSamples);
      LoadedBatch few;
      few.store(samples);
      return detail::copy_of_samples(few, samples.size);
    } else {
      return detail::copy_of_samples(batch, 0);
    }
  }
  std::optional<RunPicture> loaded_picture(const LoadedBatch& samples) final {
    return picture(samples.batch<B>());
  }
};

/// A task for images with labels.
using Task = BatchTask<Batch>;

namespace detail {

/// What the strategies that compute with copies or parts of the module need of a batch.
struct LOCKSTEP_API OutputBatch {
  Tensors inputs{};         ///< what the module takes, with the samples in the first dimensions
  torch::Tensor targets{};  ///< the `labels` of loss(), with the samples in the first dimension
  std::int64_t size = 0;    ///< the number of samples
};

/// The interface of an OutputTask that does not depend on the type of its batches. The const
/// functions may be called from several threads at once, with different modules.
class LOCKSTEP_API OutputTaskBase {
 public:
  virtual ~OutputTaskBase() = default;
  virtual torch::nn::Module& module() = 0;
  virtual OutputBatch output_batch(const LoadedBatch& batch) const = 0;
  /// The output of `module` for OutputBatch::inputs, with the samples in the first dimension.
  virtual torch::Tensor output(torch::nn::Module& module, const Tensors& inputs) const = 0;
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const = 0;
  virtual void evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                        Metrics& metrics) const = 0;
  virtual std::vector<pipeline::StageModule> stages(int count) const;
};

}  // namespace detail

/// A task whose loss is a function of its module's output. Strategies that compute with copies or
/// parts of the module need an OutputTask: they call its functions instead of training_step() and
/// evaluation_step().
///
/// The const functions may be called from several threads at once, with different modules.
class LOCKSTEP_API OutputTask : public Task, public detail::OutputTaskBase {
 public:
  torch::nn::Module& module() override = 0;
  /// The output of `module`, which is the task's own or a copy of it, for a batch's images.
  virtual torch::Tensor forward(torch::nn::Module& module, const torch::Tensor& images) const = 0;
  /// The `labels` passed to loss() and evaluate(), with the batch's samples in the first dimension:
  /// the batch's labels, or for an auto-encoder its images.
  virtual torch::Tensor targets(const Batch& batch) const { return batch.labels; }
  /// The mean loss over the samples, a tensor without dimensions. `output` and `labels` are on one
  /// device.
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override = 0;
  /// Adds the results of the samples, as evaluation_step() does.
  void evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                Metrics& metrics) const override = 0;

  /// The module as `count` stages that share its submodules, in forward order. Throws ConfigError
  /// if the module cannot be divided, or not into this many stages.
  std::vector<pipeline::StageModule> stages(int count) const override;

  detail::OutputBatch output_batch(const LoadedBatch& batch) const final;
  torch::Tensor output(torch::nn::Module& module, const Tensors& inputs) const final;

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
      : ClassificationTask(
            net.ptr(),
            [](torch::nn::Module& module, const torch::Tensor& images) -> torch::Tensor {
              return dynamic_cast<typename ModuleHolder::ContainedType&>(module).forward(images);
            },
            loss, std::move(cut)) {}
  /// For a module whose forward() returns more than the scores: `forward` calls a module of the
  /// type of `module`, and returns [N, classes].
  using Forward = std::function<torch::Tensor(torch::nn::Module&, const torch::Tensor&)>;
  ClassificationTask(std::shared_ptr<torch::nn::Module> module, Forward forward,
                     ClassificationLoss loss, Cut cut)
      : module_(std::move(module)),
        forward_(std::move(forward)),
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
  Forward forward_;
  ClassificationLoss loss_;
  Cut cut_;
  std::vector<MetricPtr> metrics_;
};

}  // namespace lockstep
