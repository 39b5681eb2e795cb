#include <lockstep/optim/distinct.h>

#include <unordered_set>

namespace lockstep {

Tensors distinct(const Tensors& tensors) {
  Tensors once;
  once.reserve(tensors.size());
  std::unordered_set<const torch::TensorImpl*> seen(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) once.push_back(tensor);
  }
  return once;
}

}  // namespace lockstep
