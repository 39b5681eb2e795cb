#include <lockstep/parallel/pipeline/micro_batches.h>

#include <torch/utils.h>

#include <numeric>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {

std::vector<std::int64_t> part_sizes(std::int64_t samples, int parts) {
  std::vector<std::int64_t> sizes;
  for (int part = 0; part < parts; ++part) {
    sizes.push_back(samples / parts + (part < samples % parts ? 1 : 0));
  }
  return sizes;
}

Tensors split_batch(const torch::Tensor& tensor, const std::vector<std::int64_t>& sizes,
                    const char* name) {
  if (!tensor.defined()) return Tensors(sizes.size());
  const auto samples = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (tensor.dim() < 1 || tensor.size(0) != samples) {
    throw ConfigError(lockstep::str("pipeline: ", name, " has shape ", tensor.sizes(),
                                    ", expected ", samples, " samples along dimension 0"));
  }
  Tensors parts;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(tensor.narrow(0, first, size));
    first += size;
  }
  return parts;
}

std::vector<Tensors> split_inputs(const Tensors& x, const std::vector<std::int64_t>& sizes) {
  std::vector<Tensors> inputs(sizes.size());
  for (const torch::Tensor& tensor : x) {
    const Tensors parts = split_batch(tensor, sizes, "x");
    for (std::size_t i = 0; i < parts.size(); ++i) inputs[i].push_back(parts[i]);
  }
  return inputs;
}

torch::Tensor sum_of_losses(const std::vector<Tensors>& losses) {
  const torch::NoGradGuard no_grad;
  torch::Tensor sum;
  for (const Tensors& each : losses) sum = sum.defined() ? sum + each[0] : each[0];
  return sum;
}

Tensors joined_outputs(const std::vector<Tensors>& outputs) {
  const torch::NoGradGuard no_grad;
  Tensors joined;
  for (std::size_t output = 0; output < outputs[0].size(); ++output) {
    Tensors parts;
    for (const Tensors& each : outputs) parts.push_back(each[output]);
    const bool as_it_is = parts.size() == 1 || !parts[0].defined();
    joined.push_back(as_it_is ? parts[0] : torch::cat(parts, 0));
  }
  return joined;
}

}  // namespace lockstep::pipeline
