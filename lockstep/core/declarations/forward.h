// What the declaration of a module's forward() says about its parameters.
#pragma once

#include <vector>

namespace lockstep::detail {

/// Whether forward() is a template, or has overloads, that accept one element as well as a list of
/// elements. It would then get whichever of the two the caller tries first, and x[0] would be the
/// first row of an only tensor instead of the first tensor. A template for any number of elements,
/// such as that of torch::nn::Sequential, takes elements.
template <class Module, class Element>
constexpr bool forward_takes_anything() {
  constexpr bool kIsDeclared = requires { &Module::forward; };
  return !kIsDeclared &&
         requires(Module& module, const Element& x, const std::vector<Element>& list) {
           module.forward(x);
           module.forward(list);
         } && !requires(Module& module, const Element& x) { module.forward(x, x); };
}

}  // namespace lockstep::detail
