// Types of tensors by the names of safetensors and of Python's torch, and the place of their
// elements.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::torch_file {

struct TensorType {
  std::string_view dtype;    ///< in safetensors: "F32"
  std::string_view storage;  ///< the class of its storages: "FloatStorage"; empty for untyped ones
  std::string_view name;     ///< in Python's torch: "float32"
};

/// Null where there is no such type.
const TensorType* type_of_dtype(std::string_view dtype);
const TensorType* type_of_storage(std::string_view storage);
const TensorType* type_of_name(std::string_view name);

/// What is wrong with the shape, strides and offset of `tensor`, whose type is known; empty when
/// all that they reach is within the storage.
std::string wrong_geometry(const TorchTensor& tensor);

/// What is wrong where tensors that repeat their elements exceed the limits of torch_file.h;
/// otherwise empty. Their geometry is right.
std::string wrong_expansion(const TorchTensors& tensors);

}  // namespace lockstep::torch_file
