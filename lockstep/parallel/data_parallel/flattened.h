// Extracts the tensors of a value of any structure, and replaces them with others.
// for_each_tensor() defines which structures are supported.
#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/datasets/batch_structure.h>

namespace lockstep::detail::data_parallel {

/// A key of a map, of any type.
class LOCKSTEP_API MapKey {
 public:
  template <class Key>
  explicit MapKey(const Key& key) : is_same_(&is_same<Key>) {
    if constexpr (std::is_copy_constructible_v<Key>) value_ = key;
    if constexpr (requires(std::ostream& out) { out << key; }) {
      text_ = lockstep::str(key);
    } else if constexpr (std::is_enum_v<Key>) {
      text_ = lockstep::str(static_cast<std::int64_t>(key));
    }
  }
  bool operator==(const MapKey& other) const { return is_same_(value_, other.value_); }
  const std::string& text() const { return text_; }

 private:
  // Keys that can neither be copied nor compared count as equal.
  template <class Key>
  static bool is_same(const std::any& a, const std::any& b) {
    if constexpr (!std::is_copy_constructible_v<Key>) return true;
    const auto* const x = std::any_cast<Key>(&a);
    const auto* const y = std::any_cast<Key>(&b);
    if (x == nullptr || y == nullptr) return false;
    if constexpr (std::equality_comparable<Key>) {
      return *x == *y;
    } else if constexpr (requires { *x < *y; }) {
      return !(*x < *y) && !(*y < *x);
    } else {
      return true;
    }
  }

  std::any value_;
  bool (*is_same_)(const std::any&, const std::any&);
  std::string text_ = "a key that cannot be printed";
};

/// A visitor for for_each_tensor() that collects tensors.
struct LOCKSTEP_API Flattened {
  std::vector<torch::Tensor> tensors{};  ///< in the order of for_each_tensor()
  std::vector<MapKey> keys{};            ///< keys of the maps

  void operator()(const torch::Tensor& tensor) { tensors.push_back(tensor); }
  template <class Key>
  void key(const Key& key) {
    keys.emplace_back(key);
  }
};

template <class T>
Flattened flattened(T& value) {
  Flattened result;
  for_each_tensor(value, result);
  return result;
}

/// Replaces the tensors in the value with `tensors`, in the order of for_each_tensor().
template <class T>
void replace_tensors(T& value, const std::vector<torch::Tensor>& tensors) {
  std::size_t next = 0;
  for_each_tensor(value, [&](torch::Tensor& tensor) { tensor = tensors.at(next++); });
}

}  // namespace lockstep::detail::data_parallel
