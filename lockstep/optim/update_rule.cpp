#include <lockstep/optim/update_rule.h>

#include <algorithm>
#include <cstring>

#include <lockstep/optim/rules.h>

namespace lockstep {
namespace {

bool same_kind(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

// LibTorch's kernels process memory in vectors of at most this size. They process the remaining
// elements of a tensor one by one, without fused multiply-adds, which rounds differently.
constexpr std::size_t kVectorBytes = 64;

struct Tail {
  std::size_t tensor;
  std::size_t offset;  // in bytes
  std::size_t bytes;
};

std::vector<Tail> find_tails(const Tensors& tensors) {
  std::vector<Tail> tails;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = tensors[i].nbytes();
    const std::size_t tail = bytes % kVectorBytes;
    if (tail != 0) tails.push_back({.tensor = i, .offset = bytes - tail, .bytes = tail});
  }
  return tails;
}

// Concatenates all tails, each padded to a whole vector.
torch::Tensor gather(const std::vector<Tail>& tails, const Tensors& tensors) {
  const std::size_t elements = tails.size() * kVectorBytes / tensors[0].element_size();
  torch::Tensor gathered =
      torch::zeros({static_cast<std::int64_t>(elements)}, tensors[0].options());
  auto* to = static_cast<std::byte*>(gathered.data_ptr());
  for (const Tail& tail : tails) {
    const auto* from = static_cast<const std::byte*>(tensors[tail.tensor].const_data_ptr());
    std::memcpy(to, from + tail.offset, tail.bytes);
    to += kVectorBytes;
  }
  return gathered;
}

void scatter(const torch::Tensor& gathered, const std::vector<Tail>& tails,
             const Tensors& tensors) {
  const auto* from = static_cast<const std::byte*>(gathered.const_data_ptr());
  for (const Tail& tail : tails) {
    auto* to = static_cast<std::byte*>(tensors[tail.tensor].data_ptr());
    std::memcpy(to + tail.offset, from, tail.bytes);
    from += kVectorBytes;
  }
}

// Makes the kernel process the tails as vectors, so that an element's value does not depend on
// where a tensor ends. The kernel's own results for the tails are overwritten.
void call_in_vectors(const Tensors& parameters, const Tensors& gradients,
                     const std::vector<Tensors>& states, const optim::KernelCall& kernel) {
  const std::vector<Tail> tails =
      parameters[0].is_cpu() ? find_tails(parameters) : std::vector<Tail>();
  if (tails.empty()) return kernel(parameters, gradients, states);
  const auto with_tails = [&](Tensors tensors) {
    tensors.push_back(gather(tails, tensors));
    return tensors;
  };
  const Tensors all_parameters = with_tails(parameters);
  std::vector<Tensors> all_states;
  for (const Tensors& state : states) all_states.push_back(with_tails(state));
  kernel(all_parameters, with_tails(gradients), all_states);
  scatter(all_parameters.back(), tails, parameters);
  for (std::size_t s = 0; s < states.size(); ++s) scatter(all_states[s].back(), tails, states[s]);
}

// Like torch.optim, steps the real and the imaginary parts of complex parameters as real numbers.
Tensors real_views(const Tensors& tensors) {
  Tensors views;
  for (const torch::Tensor& tensor : tensors) views.push_back(at::view_as_real(tensor));
  return views;
}

void call_for_kind(const Tensors& parameters, const Tensors& gradients,
                   const std::vector<Tensors>& states, const optim::KernelCall& kernel) {
  if (!parameters[0].is_complex()) return call_in_vectors(parameters, gradients, states, kernel);
  std::vector<Tensors> real_states;
  for (const Tensors& state : states) real_states.push_back(real_views(state));
  call_in_vectors(real_views(parameters), real_views(gradients), real_states, kernel);
}

struct RuleMaker {
  std::unique_ptr<detail::UpdateRule> operator()(const SgdOptions& o) const {
    return optim::make_sgd_rule(o);
  }
  std::unique_ptr<detail::UpdateRule> operator()(const AdamOptions& o) const {
    return optim::make_adam_rule(o);
  }
  std::unique_ptr<detail::UpdateRule> operator()(const AdamWOptions& o) const {
    return optim::make_adamw_rule(o);
  }
};

}  // namespace

std::unique_ptr<detail::UpdateRule> detail::make_update_rule(const OptimizerOptions& options) {
  return std::visit(RuleMaker{}, options);
}

bool detail::keeps_zeros(UpdateRule& rule) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor parameter = torch::zeros({1});
  const std::vector<Tensors> states(rule.state_names().size(), Tensors{torch::zeros({1})});
  rule.update({parameter}, {torch::zeros({1})}, states, /*step=*/1);
  return parameter.item<double>() == 0;
}

void optim::call_for_each_kind(const Tensors& parameters, const Tensors& gradients,
                               const std::vector<Tensors>& states,
                               const optim::KernelCall& kernel) {
  if (parameters.empty()) return;
  if (std::all_of(parameters.begin(), parameters.end(),
                  [&](const auto& parameter) { return same_kind(parameter, parameters[0]); })) {
    return call_for_kind(parameters, gradients, states, kernel);
  }
  std::vector<bool> done(parameters.size());
  for (std::size_t first = 0; first < parameters.size(); ++first) {
    if (done[first]) continue;
    Tensors of_kind;
    Tensors its_gradients;
    std::vector<Tensors> its_states(states.size());
    for (std::size_t i = first; i < parameters.size(); ++i) {
      if (!same_kind(parameters[i], parameters[first])) continue;
      done[i] = true;
      of_kind.push_back(parameters[i]);
      its_gradients.push_back(gradients[i]);
      for (std::size_t s = 0; s < states.size(); ++s) its_states[s].push_back(states[s][i]);
    }
    call_for_kind(of_kind, its_gradients, its_states, kernel);
  }
}

}  // namespace lockstep
