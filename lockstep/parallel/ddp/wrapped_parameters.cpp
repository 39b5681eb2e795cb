#include <lockstep/parallel/ddp/wrapped_parameters.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/registered_tensors.h>

namespace lockstep::detail {

WrappedParameters::WrappedParameters(const torch::nn::Module& module,
                                     const std::vector<NamedParameter>& wrapped)
    : module_(&module) {
  for (const NamedParameter& parameter : wrapped) {
    wrapped_.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.tensor);
  }
  look_again(module);
}

std::string WrappedParameters::why_not_all() {
  std::size_t next = 0;
  if (as_known(*module_, next)) return "";
  for (const auto& item : module_->named_parameters()) {
    if (!item.value().requires_grad() || has_wrapped(item.value())) continue;
    return lockstep::str("parameter '", item.key(), "' requires a gradient and was ",
                         knows(item.value()) ? "frozen" : "not registered",
                         " when DistributedDataParallel was constructed, so that each rank would "
                         "train it on its own gradient; wrap the module again after such a change");
  }
  known_.clear();  // Parameters were removed, or frozen ones were added.
  look_again(*module_);
  return "";
}

bool WrappedParameters::as_known(const torch::nn::Module& module, std::size_t& next) const {
  for (const auto& item : parallel::Registered::in(module)) {
    if (next == known_.size()) return false;
    const Known& known = known_[next++];
    if (!item.value().is_same(known.parameter)) return false;
    if (!known.wrapped && item.value().requires_grad()) return false;
  }
  for (const auto& child : module.children()) {
    if (!as_known(*child, next)) return false;
  }
  return true;
}

void WrappedParameters::look_again(const torch::nn::Module& module) {
  for (const auto& item : parallel::Registered::in(module)) {
    known_.push_back({item.value(), has_wrapped(item.value())});
  }
  for (const auto& child : module.children()) look_again(*child);
}

bool WrappedParameters::knows(const torch::Tensor& parameter) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Known& known) { return known.parameter.is_same(parameter); });
}

bool WrappedParameters::has_wrapped(const torch::Tensor& parameter) const {
  return wrapped_.contains(parameter.unsafeGetTensorImpl());
}

}  // namespace lockstep::detail
