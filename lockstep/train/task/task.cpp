#include <lockstep/train/task/task.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// Labels are class indices, or class probabilities in a mixed batch.
torch::Tensor negative_log_likelihood(const torch::Tensor& output, const torch::Tensor& labels,
                                      at::Reduction::Reduction reduction) {
  if (!labels.is_floating_point()) return at::nll_loss(output, labels, {}, reduction);
  const torch::Tensor losses = -(output * labels).sum(1);
  if (reduction == at::Reduction::None) return losses;
  return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
}

}  // namespace

std::int64_t detail::FirstSize::value() const {
  if (size_) return *size_;
  throw ConfigError(
      "Trainer: a batch has no tensor with a first dimension, which would be its number of "
      "samples; override the task's batch_size()");
}

LoadedBatch detail::copy_of_samples(const LoadedBatch& batch, std::int64_t count) {
  LoadedBatch copy = batch;
  for (torch::Tensor& tensor : copy.tensors) {
    if (tensor.defined()) tensor = (count > 0 ? tensor.narrow(0, 0, count) : tensor).clone();
  }
  return copy;
}

std::vector<pipeline::StageModule> detail::OutputTaskBase::stages(int) const {
  throw ConfigError("the task does not say how its model is cut into stages");
}

std::vector<pipeline::StageModule> OutputTask::stages(int count) const {
  return detail::OutputTaskBase::stages(count);
}

detail::OutputBatch OutputTask::output_batch(const LoadedBatch& loaded) const {
  const auto batch = loaded.batch<Batch>();
  return {.inputs = {batch.images}, .targets = targets(batch), .size = batch.size};
}

torch::Tensor OutputTask::output(torch::nn::Module& module, const Tensors& inputs) const {
  return forward(module, inputs.at(0));
}

torch::Tensor OutputTask::training_step(const Batch& batch) {
  return loss(forward(module(), batch.images), targets(batch));
}

void OutputTask::evaluation_step(const Batch& batch, Metrics& metrics) {
  evaluate(forward(module(), batch.images), targets(batch), metrics);
}

torch::Tensor ClassificationTask::reduced_loss(const torch::Tensor& output,
                                               const torch::Tensor& labels,
                                               at::Reduction::Reduction reduction) const {
  return loss_ == ClassificationLoss::kCrossEntropy
             ? at::cross_entropy_loss(output.to(torch::kFloat32), labels, {}, reduction)
             : negative_log_likelihood(output.to(torch::kFloat32), labels, reduction);
}

torch::Tensor ClassificationTask::loss(const torch::Tensor& output,
                                       const torch::Tensor& labels) const {
  return reduced_loss(output, labels, at::Reduction::Mean);
}

torch::Tensor ClassificationTask::sample_losses(const torch::Tensor& output,
                                                const torch::Tensor& labels) const {
  return reduced_loss(output, labels, at::Reduction::None);
}

torch::Tensor ClassificationTask::probabilities(const torch::Tensor& output) const {
  const torch::Tensor values = output.to(torch::kFloat32);
  return loss_ == ClassificationLoss::kCrossEntropy ? values.softmax(1) : values.exp();
}

void ClassificationTask::evaluate(const torch::Tensor& output, const torch::Tensor& labels,
                                  Metrics& metrics) const {
  metrics.add(reduced_loss(output, labels, at::Reduction::Sum), output.argmax(1).eq(labels).sum(),
              labels.size(0));
  metrics.update(output, labels);
}

std::vector<pipeline::StageModule> ClassificationTask::stages(int count) const {
  return cut_ ? cut_(count) : OutputTask::stages(count);
}

}  // namespace lockstep
