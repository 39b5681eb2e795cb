#include <lockstep/parallel/ddp/reduced_gradients.h>

#include <algorithm>

namespace lockstep::parallel {

bool ReducedGradients::Entry::left_over() const {
  const torch::Tensor& gradient = parameter.grad();
  return reduced && gradient.defined() && gradient.any().item<bool>();
}

ReducedGradients::ReducedGradients(const std::vector<detail::NamedParameter>& parameters) {
  for (const auto& [name, parameter] : parameters) {
    const auto [place, is_new] =
        entries_.emplace(parameter.unsafeGetTensorImpl(), Entry{name, parameter});
    if (!is_new || !parameter.requires_grad()) continue;
    Entry& entry = place->second;
    // Autograd calls the hook before it adds the gradient.
    entry.hook = parameter.register_hook([&entry](const torch::Tensor&) {
      if (!entry.left_over()) entry.reduced = false;
    });
  }
}

ReducedGradients::~ReducedGradients() {
  for (auto& [impl, entry] : entries_) {
    if (entry.hook) entry.parameter.remove_hook(*entry.hook);
  }
}

void ReducedGradients::insert(const GradBucket& bucket) {
  for (const torch::Tensor& parameter : bucket.parameters) {
    entries_.at(parameter.unsafeGetTensorImpl()).reduced = true;
  }
}

std::string ReducedGradients::erase(const GradBucket& bucket) {
  std::string left_over;
  for (const torch::Tensor& parameter : bucket.parameters) {
    Entry& entry = entries_.at(parameter.unsafeGetTensorImpl());
    if (entry.left_over()) left_over = entry.name;
    entry.reduced = false;
  }
  return left_over;
}

void ReducedGradients::clear() {
  for (auto& [impl, entry] : entries_) entry.reduced = false;
}

bool ReducedGradients::empty() const {
  return std::none_of(entries_.begin(), entries_.end(), [](const auto& item) {
    return item.second.reduced && item.second.parameter.grad().defined();
  });
}

}  // namespace lockstep::parallel
