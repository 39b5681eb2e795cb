#include <lockstep/train/task.h>

namespace lockstep {
namespace {

// Of classes, or of probabilities of classes as a mixed batch has them.
torch::Tensor negative_log_likelihood(const torch::Tensor& output, const torch::Tensor& labels,
                                      at::Reduction::Reduction reduction) {
  if (!labels.is_floating_point()) return at::nll_loss(output, labels, {}, reduction);
  const torch::Tensor losses = -(output * labels).sum(1);
  return reduction == at::Reduction::Mean ? losses.mean() : losses.sum();
}

}  // namespace

torch::Tensor ClassificationTask::loss(const torch::Tensor& output, const torch::Tensor& labels,
                                       at::Reduction::Reduction reduction) const {
  return loss_ == ClassificationLoss::kCrossEntropy
             ? at::cross_entropy_loss(output.to(torch::kFloat32), labels, {}, reduction)
             : negative_log_likelihood(output.to(torch::kFloat32), labels, reduction);
}

torch::Tensor ClassificationTask::training_step(const Batch& batch) {
  return loss(forward_(batch.images), batch.labels, at::Reduction::Mean);
}

void ClassificationTask::evaluation_step(const Batch& batch, MetricSums& sums) {
  const auto output = forward_(batch.images);
  sums.add(loss(output, batch.labels, at::Reduction::Sum), output.argmax(1).eq(batch.labels).sum(),
           batch.size);
}

}  // namespace lockstep
