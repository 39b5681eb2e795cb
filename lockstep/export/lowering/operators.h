// The table of lowerings: the operations of LibTorch that can be exported, and how.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/export/lowering/recorded_operation.h>

namespace lockstep::onnx {

struct Operator;
using Lower = void (*)(RecordedOperation& operation, const Operator& entry);

/// To add an operator, add an entry to the table of its family, and a case to the family's file in
/// tests/export/operators/.
struct Operator {
  const char* name = "";  ///< without "aten::", and without the "_" of in-place operations
  Lower lower = nullptr;
  const char* onnx = "";  ///< distinguishes entries that share one function
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

/// The entry for an operation of LibTorch, such as "aten::relu_"; null if there is none. An entry
/// covers all overloads except those listed in has_other_arguments().
const Operator* find_operator(const std::string& qualified_name);

/// Whether the arguments of an overload (such as "decimals" of "aten::round") have another meaning
/// than the entry for its name assumes, so that the entry must not be used.
bool has_other_arguments(const std::string& qualified_name, std::string_view overload);

/// The names of all entries, sorted.
std::vector<std::string> operator_names();

}  // namespace lockstep::onnx
