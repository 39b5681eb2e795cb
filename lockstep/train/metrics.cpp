#include <lockstep/train/metrics.h>

namespace lockstep {

void MetricSums::add(double loss_sum, double correct, std::int64_t samples) {
  sums_[0] += loss_sum;
  sums_[1] += correct;
  sums_[2] += static_cast<double>(samples);
}

void MetricSums::add(const torch::Tensor& loss_sum, const torch::Tensor& correct,
                     std::int64_t samples) {
  const torch::NoGradGuard no_grad;
  if (loss_sum.is_cpu()) {
    add(loss_sum.item<double>(), correct.defined() ? correct.item<double>() : 0.0, samples);
    return;
  }
  const auto loss = loss_sum.detach().to(torch::kFloat64);
  const auto both = torch::stack(
      {loss, correct.defined() ? correct.to(torch::kFloat64) : torch::zeros_like(loss)});
  device_sums_ = device_sums_.defined() ? device_sums_.add_(both) : both;
  sums_[2] += static_cast<double>(samples);
}

std::array<double, 3> MetricSums::values() const {
  std::array<double, 3> result = sums_;
  if (device_sums_.defined()) {
    const auto host = device_sums_.cpu();
    for (int i = 0; i < 2; ++i) result[i] += host[i].item<double>();
  }
  return result;
}

void MetricSums::all_reduce(ProcessGroup& group, torch::Device device) {
  if (group.size() == 1) return;
  const auto own = values();
  auto tensor = torch::tensor({own[0], own[1], own[2]}, torch::kFloat64).to(device);
  group.all_reduce(tensor, ReduceOp::kSum);
  tensor = tensor.cpu();
  for (int i = 0; i < 3; ++i) sums_[i] = tensor[i].item<double>();
  device_sums_ = torch::Tensor();
}

Evaluation MetricSums::mean() const {
  const auto sums = values();
  if (sums[2] == 0) return {};
  return {.loss = sums[0] / sums[2],
          .accuracy = sums[1] / sums[2],
          .samples = static_cast<std::int64_t>(sums[2])};
}

}  // namespace lockstep
