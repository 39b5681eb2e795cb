// What a Plan consists of.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include <lockstep/program/in_place.h>
#include <lockstep/program/plan.h>
#include <lockstep/program/python_operators.h>

namespace lockstep::program {

/// An argument of an instruction.
struct Operand {
  enum class Kind {
    kConstant,
    kRegister,
    kList,         ///< `items`, as a list of `list_type`
    kTraining,     ///< whether the module `module` is in training mode
    kProbability,  ///< `constant` while the module `module` is in training mode, otherwise 0
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant{};
  int index = -1;          ///< the register
  bool is_last = false;    ///< the last use of the register: the value is moved out of it
  bool as_float = false;   ///< a register's integer is passed as a floating-point number
  bool as_tensor = false;  ///< a register's number is passed as a tensor (wrapped_number)
  int module = -1;
  c10::TypePtr list_type{};  ///< the type of the items
  std::vector<Operand> items{};
};

/// Returns `value`, a number in the place of a tensor, as a tensor that does not decide the type of
/// the result.
c10::IValue wrapped_number(const c10::IValue& value);

struct Plan::Instruction {
  enum class Kind {
    kOperator,  ///< LibTorch's dispatcher calls it
    kPython,    ///< arithmetic of sizes
    kSize,      ///< the size of a tensor: operands are the tensor and the dimension
    kGradMode,  ///< operands: on, arguments of graphs[0]
    kAutocast,  ///< operands: device, type, on, an unused one, arguments of graphs[0]
    kInline,    ///< operands: arguments of graphs[0]
    kCond,      ///< operands: condition, arguments of graphs[0] and graphs[1]
    kWhile,     ///< operands: values that graphs[1] replaces while graphs[0] is true, others
    kBypass,    ///< in evaluation mode, skips `bypassed` instructions: operand 0 is the result
    kScan,      ///< operands: carried values, lists, others; graphs[0] for each row of the lists
  };
  Kind kind = Kind::kOperator;
  std::vector<c10::OperatorHandle> operation{};  ///< one, for kOperator; it has no default
  std::optional<InPlaceCall> in_place{};         ///< if `operation` has such a form
  PythonOperator python = nullptr;
  std::vector<Operand> operands{};
  std::vector<std::shared_ptr<const Plan>> graphs{};
  std::size_t carried = 0;      ///< how many values kWhile and kScan carry
  std::size_t rows = 0;         ///< how many operands of kScan are lists
  std::size_t bypassed = 0;     ///< how many instructions kBypass skips
  std::vector<int> released{};  ///< registers whose last use is among the skipped instructions
  int module = -1;              ///< the module whose mode kBypass reads
  bool is_reversed = false;     ///< kScan begins with the last row
  /// For each value that the operator returns, its register; for a list one for each item. -1 drops
  /// the value.
  struct Result {
    bool is_list = false;
    std::vector<int> registers{};
  };
  std::vector<Result> results{};
  int only_in_training_of = -1;  ///< a module; in evaluation mode the first operand is the result
  std::size_t node = 0;          ///< its place in the graph
  std::string where{};           ///< "aten::conv2d at net.py:12: ..."
  std::string source{};          ///< Node::source
};

struct Plan::Output {
  Operand operand{};
};

}  // namespace lockstep::program
