#include <lockstep/parallel/base/joinable.h>

#include <lockstep/core/strings.h>

namespace lockstep::parallel {

bool joinable(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.dim() != b.dim()) return false;
  return a.dim() == 0 || a.sizes().slice(1) == b.sizes().slice(1);
}

std::string described(const torch::Tensor& tensor) {
  return tensor.defined() ? lockstep::str(tensor.scalar_type(), ' ', tensor.sizes()) : "undefined";
}

}  // namespace lockstep::parallel
