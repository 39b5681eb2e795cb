#include <lockstep/parallel/data_parallel/gather.h>

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/variable.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/joinable.h>

namespace lockstep::detail::data_parallel {
namespace {

// The values of `part` on `device`, without its graph but with the sizes and version of `part`.
torch::Tensor values_on(const torch::Tensor& part, torch::Device device) {
  const torch::Tensor values = part.detach();
  return values.device() == device ? values : values.to(values.options().device(device));
}

}  // namespace

GatheredTensor::GatheredTensor(Form form, const std::vector<torch::Tensor>& parts) : form_(form) {
  for (const torch::Tensor& part : parts) {
    const bool has_graph = part.defined() && part.requires_grad();
    roots_.push_back(has_graph ? torch::autograd::impl::gradient_edge(part)
                               : torch::autograd::Edge());
    devices_.push_back(part.defined() ? part.device() : torch::Device(torch::kCPU));
  }
}

bool GatheredTensor::has_roots() const {
  return std::any_of(roots_.begin(), roots_.end(),
                     [](const auto& root) { return root.is_valid(); });
}

GatheredTensor GatheredTensor::joined(const std::vector<torch::Tensor>& parts, torch::Device device,
                                      std::size_t number) {
  for (const torch::Tensor& part : parts) {
    if (parallel::joinable(parts.front(), part)) continue;
    throw ConfigError(lockstep::str("DataParallel: tensor ", number, " of the output is ",
                                    parallel::described(parts.front()), " on one replica and ",
                                    parallel::described(part),
                                    " on another; expected the same dtype and "
                                    "sizes, but for the first dimension"));
  }
  if (!parts.front().defined()) return GatheredTensor(Form::kConcatenated, parts);
  const bool has_rows = parts.front().dim() > 0;
  GatheredTensor result(has_rows ? Form::kConcatenated : Form::kStacked, parts);
  std::vector<torch::Tensor> values;
  std::int64_t row = 0;
  for (const torch::Tensor& part : parts) {
    values.push_back(values_on(part, device));
    if (!has_rows) {
      values.back() = values.back().reshape({1});
      continue;
    }
    result.first_row_.push_back(row);
    result.rows_.push_back(part.size(0));
    row += part.size(0);
  }
  // A view of a single number could not be given its own graph.
  result.tensor_ = values.size() == 1 && has_rows ? values.front() : torch::cat(values);
  return result;
}

GatheredTensor GatheredTensor::weighted_mean(const std::vector<torch::Tensor>& parts,
                                             std::vector<double> shares, torch::Device device) {
  GatheredTensor result(Form::kWeightedMean, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined() || parts[i].dim() > 0) {
      throw ConfigError(lockstep::str(
          "DataParallel: the criterion must return one number for its samples, a tensor "
          "without dimensions, got ",
          parallel::described(parts[i]), "; let it take their mean"));
    }
    const torch::Tensor term = values_on(parts[i], device) * shares[i];
    result.tensor_ = i == 0 ? term : result.tensor_ + term;
  }
  result.shares_ = std::move(shares);
  return result;
}

torch::Tensor GatheredTensor::gradient_of_part(const torch::Tensor& gradient,
                                               std::size_t part) const {
  torch::Tensor mine;
  switch (form_) {
    case Form::kConcatenated:
      mine = gradient.narrow(0, first_row_[part], rows_[part]);
      break;
    case Form::kStacked:
      mine = gradient.select(0, static_cast<std::int64_t>(part));
      break;
    case Form::kWeightedMean:
      mine = gradient * shares_[part];
      break;
  }
  const torch::Device device = devices_[part];
  return mine.device() == device ? mine : mine.to(mine.options().device(device));
}

}  // namespace lockstep::detail::data_parallel
