// The tensors of a batch, whatever its structure.
//
//   struct TextBatch { torch::Tensor tokens, lengths; std::vector<std::string> names; };
//   for_each_tensor(batch, [](torch::Tensor& tensor) { tensor = tensor.to(torch::kCUDA); });
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

namespace detail::batch_structure {

// Stands for a value of any type in unevaluated expressions.
struct LOCKSTEP_API AnyValue {
  template <class T>
  operator T() const;
};

template <class T, std::size_t... I>
constexpr bool takes_values(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyValue{})...}; };
}

inline constexpr std::size_t kMostMembers = 12;

// The number of members of an aggregate: the largest number of values that can initialize it.
template <class T, std::size_t N = kMostMembers + 1>
constexpr std::size_t members() {
  if constexpr (N == 0 || takes_values<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return members<T, N - 1>();
  }
}

template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };

template <class T>
concept Optional = std::same_as<T, std::optional<typename T::value_type>>;

struct LOCKSTEP_API Ignore { void operator()(const torch::Tensor&) const {} };

template <class T>
concept OwnVisit = requires(T& value) { each_tensor(value, Ignore{}); };

// Types that can never hold tensors.
template <class T>
concept Plain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> ||
    std::convertible_to<const T&, std::string_view> || std::convertible_to<const T&, std::string>;

template <class T>
concept Range = std::ranges::range<T> && !Plain<T>;

template <class T>
concept Map = requires {
  typename T::key_type;
  typename T::mapped_type;
};

// A map whose order depends on how it was filled.
template <class T>
concept HashMap =
    Map<T> && std::totally_ordered<typename T::key_type> && requires { typename T::hasher; };

// An item of torch::OrderedDict, which is a class of its own.
template <class T>
concept DictItem = !std::is_aggregate_v<T> && requires(T& item) {
  item.key();
  item.value();
  item.pair();
};

// Calls f for each item of `map`, a pair. A hash table is visited in the order of its keys, so that
// two tables with the same keys are visited in the same order.
template <class T, class F>
void for_each_item(T& map, F&& f) {
  if constexpr (HashMap<std::remove_const_t<T>>) {
    std::vector<decltype(&*map.begin())> items;
    items.reserve(map.size());
    for (auto& item : map) items.push_back(&item);
    std::ranges::sort(items, std::ranges::less(),
                      [](const auto* item) -> const auto& { return item->first; });
    for (auto* item : items) f(*item);
  } else {
    for (auto& item : map) f(item);
  }
}

// Calls f.key(key), if the visitor f has such a function, before f visits the key's tensors.
template <class F, class Key>
void tell_key([[maybe_unused]] F& f, [[maybe_unused]] const Key& key) {
  if constexpr (requires { f.key(key); }) f.key(key);
}

// Calls f for each member of `value`, an aggregate.
template <class T, class F>
void for_each_member(T& value, F&& f) {
  constexpr std::size_t kMembers = members<std::remove_const_t<T>>();
  static_assert(kMembers <= kMostMembers,
                "a struct of a batch has at most 12 members: group them in structs of their own");
  const auto each = [&](auto&... member) { (f(member), ...); };
  if constexpr (std::is_empty_v<T>) {
    return;
  } else if constexpr (kMembers == 1) {
    auto& [a] = value;
    each(a);
  } else if constexpr (kMembers == 2) {
    auto& [a, b] = value;
    each(a, b);
  } else if constexpr (kMembers == 3) {
    auto& [a, b, c] = value;
    each(a, b, c);
  } else if constexpr (kMembers == 4) {
    auto& [a, b, c, d] = value;
    each(a, b, c, d);
  } else if constexpr (kMembers == 5) {
    auto& [a, b, c, d, e] = value;
    each(a, b, c, d, e);
  } else if constexpr (kMembers == 6) {
    auto& [a, b, c, d, e, g] = value;
    each(a, b, c, d, e, g);
  } else if constexpr (kMembers == 7) {
    auto& [a, b, c, d, e, g, h] = value;
    each(a, b, c, d, e, g, h);
  } else if constexpr (kMembers == 8) {
    auto& [a, b, c, d, e, g, h, i] = value;
    each(a, b, c, d, e, g, h, i);
  } else if constexpr (kMembers == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = value;
    each(a, b, c, d, e, g, h, i, j);
  } else if constexpr (kMembers == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = value;
    each(a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (kMembers == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = value;
    each(a, b, c, d, e, g, h, i, j, k, l);
  } else {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = value;
    each(a, b, c, d, e, g, h, i, j, k, l, m);
  }
}

}  // namespace detail::batch_structure

/// Calls f(torch::Tensor&) for every tensor in `value`, in the order of declaration; if `value` is
/// const, f gets a const torch::Tensor&. `value` may be a tensor; a struct of up to 12 public
/// members without base classes and constructors; a tuple, pair or array; an optional; a vector,
/// map or other range; or any nesting of these. Numbers, enumerations and strings are skipped. The
/// tensors of a hash map come in the order of its keys.
///
/// The compiler rejects any other type, so that no tensor is overlooked. To support a type, define
/// `template <class F> void each_tensor(Type&, F&& f)` in its namespace.
template <class T, class F>
void for_each_tensor(T& value, F&& f) {
  using Value = std::remove_const_t<T>;
  const auto inside = [&f](auto& part) { for_each_tensor(part, f); };
  if constexpr (std::same_as<Value, torch::Tensor>) {
    f(value);
  } else if constexpr (detail::batch_structure::OwnVisit<T>) {
    each_tensor(value, f);
  } else if constexpr (detail::batch_structure::Plain<Value>) {
    return;
  } else if constexpr (detail::batch_structure::Optional<Value>) {
    if (value) inside(*value);
  } else if constexpr (detail::batch_structure::TupleLike<Value>) {
    std::apply([&](auto&... parts) { (inside(parts), ...); }, value);
  } else if constexpr (detail::batch_structure::DictItem<Value>) {
    detail::batch_structure::tell_key(f, value.key());
    inside(value.value());
  } else if constexpr (detail::batch_structure::Range<Value>) {
    if constexpr (detail::batch_structure::Map<Value>) {
      detail::batch_structure::for_each_item(value, [&](auto& item) {
        detail::batch_structure::tell_key(f, item.first);
        inside(item.second);
      });
    } else if constexpr (!detail::batch_structure::Plain<std::ranges::range_value_t<Value>>) {
      for (auto& part : value) inside(part);
    }
  } else {
    static_assert(std::is_aggregate_v<Value>,
                  "a batch is made of tensors, structs, tuples, ranges, optionals, numbers and "
                  "strings; for other types see for_each_tensor()");
    detail::batch_structure::for_each_member(value, inside);
  }
}

/// The types of batches that a data set can make and a loader can return.
template <class B>
concept BatchOfTensors = std::default_initializable<B> && std::copyable<B>;

}  // namespace lockstep
