// What the names in an exported graph mean in this LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// Returns LibTorch's type for `code`. Throws a CheckpointError if LibTorch has none.
c10::ScalarType scalar_type(ScalarTypeCode code);

/// The operator that a node calls "torch.ops.aten.add_.Tensor". Nothing if LibTorch does not have
/// it: for functions of Python and operators that take graphs.
std::optional<c10::OperatorHandle> find_operator(std::string_view target);

}  // namespace lockstep::program
