// The names of operators in an exported graph.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// An operator as LibTorch's dispatcher names it.
struct OperatorName {
  std::string name{};      ///< "aten::add_", "higher_order::cond"
  std::string overload{};  ///< "Tensor"; empty for the overload "default"
};

/// The operator "torch.ops.aten.add_.Tensor". Nothing for other functions, such as "_operator.mul".
std::optional<OperatorName> operator_name(std::string_view target);

/// What `node` calls and where, for messages: "aten::conv2d at net.py:12: x = self.conv(x)".
std::string call_text(const Node& node);

}  // namespace lockstep::program
