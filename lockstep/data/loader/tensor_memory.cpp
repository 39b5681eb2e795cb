#include <lockstep/data/loader/tensor_memory.h>

namespace lockstep::data {

torch::Tensor reuse(torch::Tensor& memory, torch::IntArrayRef sizes, torch::IntArrayRef strides,
                    const torch::TensorOptions& options) {
  const bool fits =
      memory.defined() && memory.dtype() == options.dtype() && memory.strides() == strides &&
      (sizes.empty() || (memory.size(0) >= sizes[0] && memory.sizes().slice(1) == sizes.slice(1)));
  if (!fits) memory = torch::empty_strided(sizes, strides, options);
  return sizes.empty() || memory.size(0) == sizes[0] ? memory : memory.narrow(0, 0, sizes[0]);
}

torch::Tensor copy_reusing(torch::Tensor& memory, const torch::Tensor& from,
                           const torch::TensorOptions& options) {
  if (!from.defined()) return from;
  if (from.layout() != torch::kStrided) return from.to(options.device(), /*non_blocking=*/true);
  // Elements that share memory, as in an expanded tensor, are written out.
  const torch::Tensor dense = from.is_non_overlapping_and_dense() ? from : from.contiguous();
  return reuse(memory, dense.sizes(), dense.strides(), options).copy_(dense, /*non_blocking=*/true);
}

}  // namespace lockstep::data
