#include <lockstep/parallel/pipeline/micro_batches.h>

#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

#include <numeric>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/joinable.h>

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

bool share_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && a.is_alias_of(b);
}

Tensors with_own_versions(const Tensors& parts) {
  Tensors own;
  for (const torch::Tensor& part : parts) {
    // Tensors made in inference mode have no version.
    const bool counts = part.defined() && !part.is_inference();
    own.push_back(counts ? part.variable_data() : part);
    for (std::size_t i = 0; counts && i + 1 < own.size(); ++i) {
      if (own[i].is_inference() || !share_memory(own[i], part)) continue;
      torch::autograd::impl::set_version_counter(own.back(),
                                                 torch::autograd::impl::version_counter(own[i]));
      break;
    }
  }
  return own;
}

bool pass_changes_on(const Tensors& own, const Tensors& parts) {
  bool any = false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined() || own[i].is_inference() || own[i]._version() == 0) continue;
    any = true;
    parts[i].unsafeGetTensorImpl()->bump_version();
  }
  return any;
}

torch::Tensor sum_of_losses(const std::vector<Tensors>& losses) {
  const torch::NoGradGuard no_grad;
  torch::Tensor sum;
  for (const Tensors& each : losses) sum = sum.defined() ? sum + each[0] : each[0];
  return sum;
}

Tensors joined_outputs(const std::vector<Tensors>& outputs) {
  const torch::NoGradGuard no_grad;
  const auto refuse = [](std::size_t i, const std::string& first, const std::string& other) {
    throw ConfigError(
        lockstep::str("pipeline: the last stage returns ", first, " for micro-batch 0 and ", other,
                      " for micro-batch ", i,
                      "; expected the same number of tensors, and the same dtypes and "
                      "sizes, but for the first dimension"));
  };
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    if (outputs[i].size() == outputs[0].size()) continue;
    refuse(i, str(outputs[0].size(), " tensors"), str(outputs[i].size()));
  }
  Tensors joined;
  for (std::size_t output = 0; output < outputs[0].size(); ++output) {
    const torch::Tensor& first = outputs[0][output];
    Tensors parts;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const torch::Tensor& part = outputs[i][output];
      if (!parallel::joinable(first, part)) {
        refuse(i, str(parallel::described(first), " as tensor ", output),
               parallel::described(part));
      }
      if (part.defined()) parts.push_back(part.dim() > 0 ? part : part.reshape({1}));
    }
    joined.push_back(parts.empty()       ? torch::Tensor()
                     : parts.size() == 1 ? parts[0]
                                         : torch::cat(parts, 0));
  }
  return joined;
}

}  // namespace lockstep::pipeline
