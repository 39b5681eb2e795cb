// The table of lowerings: which operations of LibTorch can be exported, and how.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/export/lowering/operation.h>

namespace lockstep::onnx {

struct Operator;
using Lower = void (*)(Operation& operation, const Operator& entry);

/// A new operator is one entry in the table of its family, and one case in the family's file in
/// tests/export/operators/.
struct Operator {
  const char* name = "";  ///< without "aten::", and for operations in place without the "_"
  Lower lower = nullptr;
  const char* onnx = "";  ///< what several entries with one function differ in
};

using Family = std::span<const Operator>;

Family activation_operators();
Family attention_operators();
Family comparison_operators();
Family convolution_operators();
Family creation_operators();
Family elementwise_operators();
Family indexing_operators();
Family matrix_operators();
Family normalization_operators();
Family padding_operators();
Family pooling_operators();
Family recurrent_operators();
Family reduction_operators();
Family shape_operators();
Family upsampling_operators();

/// The entry for an operation of LibTorch, "aten::relu_"; null when there is none. An entry is for
/// all overloads but those that has_other_arguments() names.
const Operator* find_operator(const std::string& qualified_name);

/// Whether the overload ("decimals" of "aten::round") means its arguments otherwise than the entry
/// of its name does, so that the entry must not be used for it.
bool has_other_arguments(const std::string& qualified_name, std::string_view overload);

/// The names of all entries, sorted.
std::vector<std::string> operator_names();

}  // namespace lockstep::onnx
