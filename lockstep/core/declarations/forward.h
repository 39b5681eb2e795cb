// What the declaration of a module's forward() says about its parameters, and a call with as many
// arguments as there are inputs.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

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

/// A forward() with more arguments than this must take a list of elements.
inline constexpr std::size_t kMostForwardArguments = 6;

template <class Module, class Element, class Use, std::size_t... Index>
bool forward_one_by_one(Module& module, const std::vector<Element>& inputs, const Use& use,
                        std::index_sequence<Index...>) {
  if constexpr (requires { module.forward(inputs[Index]...); }) {
    if (inputs.size() != sizeof...(Index)) return false;
    use(module.forward(inputs[Index]...));
    return true;
  } else {
    return false;
  }
}

/// Calls `use` with what module.forward() returns for `inputs`, each of which is one argument.
/// Returns false, without a call, if forward() does not take that many.
template <class Module, class Element, class Use>
bool forward_one_by_one(Module& module, const std::vector<Element>& inputs, const Use& use) {
  return [&]<std::size_t... Before>(std::index_sequence<Before...>) {
    return (forward_one_by_one(module, inputs, use, std::make_index_sequence<Before + 1>()) || ...);
  }(std::make_index_sequence<kMostForwardArguments>());
}

}  // namespace lockstep::detail
