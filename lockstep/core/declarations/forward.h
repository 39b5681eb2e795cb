// What the declaration of a module's forward() says about its parameters.
#pragma once

namespace lockstep::detail {

/// Whether forward() is a template that may accept one element as well as a list of elements. It
/// would then get whichever of the two the caller tries first, and x[0] would be the first row of
/// an only tensor instead of the first tensor. Overloads declare what they take, and a template for
/// any number of elements, such as that of torch::nn::Sequential, takes elements. Does not
/// instantiate a template for one input, whose body need not compile: it cannot deduce a type from
/// a list in braces.
template <class Module, class Element>
constexpr bool forward_takes_anything() {
  constexpr bool kIsDeclared = requires { &Module::forward; } ||
                               requires(Module& module, const Element& x) { module.forward({x}); };
  constexpr bool kTakesSeveral =
      requires(Module& module, const Element& x) { module.forward(x, x); } ||
      requires(Module& module, const Element& x) { module.forward(x, x, x); } ||
      requires(Module& module, const Element& x) { module.forward(x, x, x, x); };
  return !kIsDeclared && !kTakesSeveral;
}

}  // namespace lockstep::detail
