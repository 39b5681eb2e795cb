// What a stage of a pipeline computes: any module, behind one signature.
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/declarations/forward.h>
#include <lockstep/core/error.h>
#include <lockstep/core/export.h>
#include <lockstep/data/datasets/batch_structure.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

namespace pipeline {

namespace detail {

template <class Impl>
std::shared_ptr<Impl> pointer_to(const std::shared_ptr<Impl>& module) {
  return module;
}
template <class Impl>
std::shared_ptr<Impl> pointer_to(const torch::nn::ModuleHolder<Impl>& module) {
  return module.ptr();
}

inline Tensors as_tensors(torch::Tensor tensor) { return {std::move(tensor)}; }
inline Tensors as_tensors(Tensors tensors) { return tensors; }
template <class... Each>
Tensors as_tensors(std::tuple<Each...> tensors) {
  return std::apply([](auto&... each) { return Tensors{each...}; }, tensors);
}
template <class First, class Second>
Tensors as_tensors(std::pair<First, Second> tensors) {
  return {tensors.first, tensors.second};
}

/// Outputs of a structure of their own, such as those of a Program.
template <class Outputs>
  requires lockstep::detail::batch_structure::OwnVisit<Outputs>
Tensors as_tensors(Outputs outputs) {
  Tensors tensors;
  for_each_tensor(outputs, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

template <class Impl>
Tensors call(Impl& module, const Tensors& inputs) {
  static_assert(
      !lockstep::detail::forward_takes_anything<Impl, torch::Tensor>(),
      "the module has no forward() whose parameter has a declared type, a tensor or a list of "
      "them, so that it is not known what a stage with one input must get; declare the type");
  Tensors outputs;
  const auto keep = [&outputs](auto&& result) {
    outputs = as_tensors(std::forward<decltype(result)>(result));
  };
  if (lockstep::detail::forward_one_by_one(module, inputs, keep)) return outputs;
  if constexpr (requires { as_tensors(module.forward(inputs)); }) {
    return as_tensors(module.forward(inputs));
  }
  throw ConfigError(lockstep::str(
      "the stage gets ", inputs.size(),
      " tensors, which its module's forward() does not take; more than ",
      lockstep::detail::kMostForwardArguments, " must be one argument, const Tensors&"));
}

// Whether the module declares that its backward is not split.
template <class Impl>
bool says_whole_backward([[maybe_unused]] const std::shared_ptr<Impl>& module) {
  if constexpr (requires { static_cast<bool>(module->has_whole_backward()); }) {
    return module != nullptr && module->has_whole_backward();
  }
  return false;
}

}  // namespace detail

/// A module whose forward() takes one to six tensors, or a list of them, and returns a tensor, a
/// list, a pair or a tuple of tensors. The first stage is called with the batch's tensors, every
/// other stage with the outputs of the previous one. Holds the module; copies share it. As
/// thread-safe as the module.
///
/// A module that is mostly one custom autograd function, whose gradients cannot be computed in
/// parts, declares this with a function `bool has_whole_backward() const`. Schedules that split
/// backwards then leave this stage's backward whole, and the pipeline's table shows it.
class LOCKSTEP_API StageModule {
 public:
  using Forward = std::function<Tensors(const Tensors& inputs)>;

  /// Makes a stage from a holder, such as torch::nn::Sequential or one made with TORCH_MODULE, or
  /// from a shared_ptr to a module.
  template <class Module>
    requires requires(const Module& module) { detail::pointer_to(module); }
  StageModule(
      const Module& module)  // NOLINT(google-explicit-constructor): {a, b} is a list of stages
      : StageModule(detail::pointer_to(module), forward_of(detail::pointer_to(module)),
                    detail::says_whole_backward(detail::pointer_to(module))) {}
  /// Does not see the module's has_whole_backward(), which AnyModule hides; use the constructor
  /// below to specify it.
  StageModule(torch::nn::AnyModule module);  // NOLINT(google-explicit-constructor)
  /// `module` has the parameters and buffers that `forward` uses. Throws ConfigError if either is
  /// null.
  StageModule(std::shared_ptr<torch::nn::Module> module, Forward forward,
              bool has_whole_backward = false);

  Tensors forward(const Tensors& inputs) const { return forward_(inputs); }
  torch::nn::Module& module() const { return *module_; }
  /// Whether the backward is never split, even if the schedule splits backwards.
  bool has_whole_backward() const { return has_whole_backward_; }

 private:
  template <class Impl>
  static Forward forward_of(std::shared_ptr<Impl> module) {
    return [module = std::move(module)](const Tensors& inputs) {
      return detail::call(*module, inputs);
    };
  }

  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
  bool has_whole_backward_;
};

/// Makes one stage for each of `holders`, such as the result of split().
template <class Holder>
std::vector<StageModule> stage_modules(const std::vector<Holder>& holders) {
  return std::vector<StageModule>(holders.begin(), holders.end());
}

}  // namespace pipeline
}  // namespace lockstep
