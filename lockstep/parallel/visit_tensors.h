// The tensors inside of what a module's forward returns.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace lockstep {

/// Calls `visit` with each tensor in `value`: a tensor, or optionals, pairs, tuples, vectors, arrays and maps
/// of what holds tensors. Passes over values of any other type.
template <class Value, class Visit>
void visit_tensors(const Value& value, const Visit& visit) {
  if constexpr (std::is_convertible_v<const Value&, const torch::Tensor&>) {
    visit(static_cast<const torch::Tensor&>(value));
  } else if constexpr (requires { value.has_value(); *value; }) {
    if (value.has_value()) visit_tensors(*value, visit);
  } else if constexpr (requires { typename std::tuple_size<Value>::type; }) {
    std::apply([&](const auto&... items) { (visit_tensors(items, visit), ...); }, value);
  } else if constexpr (requires { value.begin(); value.end(); } && !std::is_convertible_v<Value, std::string>) {
    for (const auto& item : value) visit_tensors(item, visit);
  }
}

}  // namespace lockstep
