#include <lockstep/parallel/data_parallel/scatter.h>

#include <ATen/core/grad_mode.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/data_parallel/chunk_sizes.h>

namespace lockstep::detail::data_parallel {
namespace {

bool has_rows(const torch::Tensor& tensor) { return tensor.defined() && tensor.dim() > 0; }

std::int64_t samples_of(const std::vector<torch::Tensor>& batch) {
  const torch::Tensor* first = nullptr;
  for (const torch::Tensor& tensor : batch) {
    if (!has_rows(tensor)) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.size(0) == first->size(0)) continue;
    throw ConfigError(lockstep::str(
        "DataParallel: the tensors of a batch must agree in their first dimension, got ",
        first->sizes(), " and ", tensor.sizes()));
  }
  if (first == nullptr) {
    throw ConfigError(
        "DataParallel: there is nothing to share out; expected at least one tensor whose first "
        "dimension counts the samples");
  }
  if (first->size(0) == 0) {
    throw ConfigError(
        lockstep::str("DataParallel: the batch is empty, got a tensor of shape ", first->sizes()));
  }
  return first->size(0);
}

torch::Tensor part_of(const torch::Tensor& whole, std::int64_t first_row, std::int64_t rows,
                      torch::Device device, bool differentiable) {
  if (!whole.defined()) return whole;
  torch::Tensor part = (has_rows(whole) ? whole.narrow(0, first_row, rows) : whole).detach();
  // A non-blocking copy to the CPU could be read before it has completed.
  if (part.device() != device) {
    part = part.to(part.options().device(device), /*non_blocking=*/!device.is_cpu());
  }
  if (differentiable) part.requires_grad_();
  return part;
}

}  // namespace

Scatter::Scatter(const std::vector<torch::Tensor>& batch, const std::vector<torch::Device>& devices,
                 const std::vector<double>& weights)
    : batch_(batch), samples_(samples_of(batch)), sizes_(chunk_sizes(samples_, weights)) {
  std::vector<bool> needs_gradient;
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    needs_gradient.push_back(at::GradMode::is_enabled() && batch_[i].defined() &&
                             batch_[i].requires_grad());
    if (needs_gradient.back()) differentiable_.push_back(i);
  }
  std::int64_t first_row = 0;
  parts_.resize(sizes_.size());
  for (std::size_t r = 0; r < sizes_.size(); ++r) {
    if (sizes_[r] == 0) continue;
    active_.push_back(r);
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      parts_[r].push_back(part_of(batch_[i], first_row, sizes_[r], devices[r], needs_gradient[i]));
    }
    first_row += sizes_[r];
  }
}

}  // namespace lockstep::detail::data_parallel
