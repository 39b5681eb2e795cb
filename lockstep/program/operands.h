// Arguments in a graph as operands of instructions.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/instruction.h>
#include <lockstep/program/plan.h>

namespace lockstep::program {

/// An argument does not fit where it stands. The compiler adds the place to its message.
struct UnfitArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// All functions throw UnfitArgument.
class OperandMaker {
 public:
  /// `registers`, by the names of the values, may grow while this refers to them.
  OperandMaker(const std::unordered_map<std::string, int>& registers, const Home& from,
               const Home& to)
      : registers_(registers), from_(from), to_(to) {}

  Operand in_register(const std::string& name) const;

  /// An argument without a schema: of a Python function, a higher-order operator or an output.
  Operand untyped(const Argument& argument) const;

  /// `argument` as the type of the operator's schema. A single number may stand for a list of
  /// `repeated`.
  Operand typed(const Argument& argument, const c10::TypePtr& wanted,
                std::optional<std::int32_t> repeated = std::nullopt) const;

 private:
  Operand typed_list(const Argument& argument, const c10::TypePtr& type,
                     std::optional<std::int32_t> repeated) const;
  c10::ScalarType type(ScalarTypeCode code) const;
  c10::Device device(const DeviceName& name) const;

  const std::unordered_map<std::string, int>& registers_;
  Home from_;
  Home to_;
};

}  // namespace lockstep::program
