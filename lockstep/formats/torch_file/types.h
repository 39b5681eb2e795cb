// The tensor types by their names in safetensors and in Python's torch, and checks of where a
// tensor's elements lie.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::torch_file {

struct TensorType {
  std::string_view dtype;    ///< in safetensors: "F32"
  std::string_view storage;  ///< the class of its storages: "FloatStorage"; empty: there is none
  std::string_view name;     ///< in Python's torch: "float32"
};

/// These functions return null if there is no such type.
const TensorType* type_of_dtype(std::string_view dtype);
const TensorType* type_of_storage(std::string_view storage);
const TensorType* type_of_name(std::string_view name);

/// Describes an error in the shape, strides and offset of `tensor`, whose type must be known.
/// Returns an empty string if all elements lie within the storage.
std::string wrong_geometry(const TorchTensor& tensor);

/// Describes how tensors that repeat their elements exceed the limits of torch_file.h. Returns an
/// empty string if they do not. Their geometry must be valid.
std::string wrong_expansion(const TorchTensors& tensors);

}  // namespace lockstep::torch_file
