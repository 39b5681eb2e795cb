// Visits the parameters of a module where they are registered.
#pragma once

#include <string>

#include <torch/nn/module.h>

namespace lockstep::parallel {

/// Module::parameters() copies all names into a map at each call. This accesses the parameters
/// where they are registered, which only derived classes can do.
struct Registered : torch::nn::Module {
  static const torch::OrderedDict<std::string, torch::Tensor>& in(const torch::nn::Module& module) {
    return module.*(&Registered::parameters_);
  }
};

/// Calls visit(name, parameter) for each defined parameter of `module` and then of its descendants,
/// in the order of registration. `name` is the one in its own module. A tied parameter is visited
/// once for each registration.
template <class Visit>
void for_each_parameter(const torch::nn::Module& module, const Visit& visit) {
  for (const auto& item : Registered::in(module)) {
    if (item.value().defined()) visit(item.key(), item.value());
  }
  for (const auto& child : module.children()) for_each_parameter(*child, visit);
}

}  // namespace lockstep::parallel
