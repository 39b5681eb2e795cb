#include <lockstep/optim/distinct.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <unordered_set>
#include <vector>

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

std::optional<std::pair<std::string, std::string>> first_overlap(const NamedTensors& tensors) {
  struct Span {
    torch::Device device;
    const std::byte* begin;
    const std::byte* end;
    const std::string* name;
  };
  std::vector<Span> spans;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.layout() != torch::kStrided || tensor.is_meta() || !tensor.has_storage() ||
        tensor.storage().nbytes() == 0 || !tensor.is_non_overlapping_and_dense()) {
      continue;
    }
    const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    const auto bytes = static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
    spans.push_back({tensor.device(), begin, begin + bytes, &name});
  }
  const auto place = [](const Span& span) {
    return std::tuple(span.device.type(), span.device.index(), span.begin);
  };
  std::stable_sort(spans.begin(), spans.end(),
                   [&](const Span& a, const Span& b) { return place(a) < place(b); });
  for (std::size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].device != spans[i - 1].device || spans[i].begin >= spans[i - 1].end) continue;
    return std::pair(*spans[i - 1].name, *spans[i].name);
  }
  return std::nullopt;
}

torch::Tensor without_lazy_marks(const torch::Tensor& tensor) {
  const torch::Tensor positive = tensor.is_neg() ? at::_neg_view(tensor) : tensor;
  return positive.is_conj() ? positive.conj() : positive;
}

}  // namespace lockstep::optim
