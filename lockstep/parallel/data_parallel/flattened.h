// Extracts the tensors of a value of any structure, and replaces them with others.
// for_each_tensor() defines which structures are supported.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/datasets/batch_structure.h>

namespace lockstep::detail::data_parallel {

/// A visitor for for_each_tensor() that collects tensors.
struct LOCKSTEP_API Flattened {
  std::vector<torch::Tensor> tensors{};  ///< in the order of for_each_tensor()
  std::vector<std::string> keys{};       ///< keys of the maps, if they can be printed

  void operator()(const torch::Tensor& tensor) { tensors.push_back(tensor); }
  template <class Key>
  void key(const Key& key) {
    if constexpr (requires(std::ostream& out) { out << key; }) keys.push_back(lockstep::str(key));
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
