#include <lockstep/parallel/data_parallel/gradient_sum.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <ATen/ops/_foreach_add.h>

namespace lockstep::detail::data_parallel {
namespace {

void move_together(std::vector<torch::Tensor>& tensors, torch::Device device) {
  std::map<torch::ScalarType, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor& tensor = tensors[i];
    if (!tensor.defined() || tensor.device() == device) continue;
    if (tensor.layout() == torch::kStrided) {
      by_type[tensor.scalar_type()].push_back(i);
    } else {
      tensor = tensor.to(tensor.options().device(device));
    }
  }
  for (const auto& [dtype, places] : by_type) {
    std::vector<torch::Tensor> flat;
    std::vector<std::int64_t> counts;
    for (const std::size_t i : places) {
      flat.push_back(tensors[i].reshape({-1}));
      counts.push_back(tensors[i].numel());
    }
    const torch::Tensor sent = torch::cat(flat);
    const auto arrived = sent.to(sent.options().device(device)).split_with_sizes(counts);
    for (std::size_t k = 0; k < places.size(); ++k) {
      torch::Tensor& tensor = tensors[places[k]];
      tensor = arrived[k].view(tensor.sizes());
    }
  }
}

}  // namespace

torch::Tensor gradient_sum(const torch::Tensor& a, const torch::Tensor& b) {
  return a.is_sparse() && !b.is_sparse() ? b + a : a + b;
}

std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> of_replicas,
                                         torch::Device device) {
  std::vector<torch::Tensor> sums;
  for (auto& gradients : of_replicas) {
    move_together(gradients, device);
    if (sums.empty()) {
      sums = std::move(gradients);
      continue;
    }
    // Not in place: autograd may have returned one tensor as the gradient of two parameters.
    std::vector<std::size_t> places;
    std::vector<torch::Tensor> before, more;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!gradients[i].defined()) continue;
      if (!sums[i].defined()) {
        sums[i] = std::move(gradients[i]);
        continue;
      }
      if (sums[i].is_sparse() || gradients[i].is_sparse()) {
        sums[i] = gradient_sum(sums[i], gradients[i]);
        continue;
      }
      places.push_back(i);
      before.push_back(std::move(sums[i]));
      more.push_back(std::move(gradients[i]));
    }
    if (places.empty()) continue;
    auto added = at::_foreach_add(before, more);
    for (std::size_t k = 0; k < places.size(); ++k) sums[places[k]] = std::move(added[k]);
  }
  return sums;
}

}  // namespace lockstep::detail::data_parallel
