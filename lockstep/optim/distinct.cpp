#include <lockstep/optim/distinct.h>

#include <unordered_set>

namespace lockstep::optim {
namespace {

const torch::Tensor& tensor_of(const torch::Tensor& tensor) { return tensor; }
const torch::Tensor& tensor_of(const NamedTensors::value_type& named) { return named.second; }

template <class List>
List each_once(const List& list) {
  List once;
  once.reserve(list.size());
  std::unordered_set<const torch::TensorImpl*> seen(list.size());
  for (const auto& element : list) {
    if (seen.insert(tensor_of(element).unsafeGetTensorImpl()).second) once.push_back(element);
  }
  return once;
}

}  // namespace

Tensors distinct(const Tensors& tensors) { return each_once(tensors); }
NamedTensors distinct(const NamedTensors& tensors) { return each_once(tensors); }

torch::Tensor without_lazy_marks(const torch::Tensor& tensor) {
  const torch::Tensor positive = tensor.is_neg() ? at::_neg_view(tensor) : tensor;
  return positive.is_conj() ? positive.conj() : positive;
}

}  // namespace lockstep::optim
