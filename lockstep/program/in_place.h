// Calls that write their result to the memory of an operand that is not needed any more.
//
// For `y = relu(x)` Python allocates memory for `y`, although the model may never use `x` again. A
// plan knows the last use of each value, and calls `relu_(x)` there if nothing else refers to the
// memory of `x`. This is decided in each call by the counts of references: another value, a view
// or its base, the caller of the program, and each function of autograd that has saved the tensor
// for backward hold a reference to the tensor or to its storage.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <vector>

#include <lockstep/program/plan.h>

namespace lockstep::program {

struct InPlaceRule;

/// The in-place form of a call.
struct InPlaceCall {
  c10::OperatorHandle operation;  ///< "aten::relu_"
  const InPlaceRule* rule = nullptr;
  /// Whether the call is the last use of its first and of its second operand, and neither is an
  /// input of the graph.
  std::array<bool, 2> is_last{};

  /// Returns whether `operation` can be called instead of the original operator, with the same
  /// bits in its result and in all gradients. If so, makes the operand that it overwrites the first
  /// one of `arguments`.
  bool prepare(std::vector<c10::IValue>& arguments) const;
};

/// Adds the in-place forms to the instructions of a plan whose last uses are marked. `inputs` are
/// the registers of the graph's inputs.
void add_in_place_calls(std::vector<Plan::Instruction>& instructions,
                        const std::vector<int>& inputs);

}  // namespace lockstep::program
