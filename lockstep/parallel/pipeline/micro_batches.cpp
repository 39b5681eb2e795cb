#include <lockstep/parallel/pipeline/micro_batches.h>

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
    throw ConfigError(lockstep::str("Pipeline: ", name, " has shape ", tensor.sizes(),
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

}  // namespace lockstep::pipeline
