#include <lockstep/export/lowering/fold.h>

#include <algorithm>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/types.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

template <class Element>
c10::IValue typed_list(const std::vector<c10::IValue>& values) {
  c10::List<Element> list;
  for (const c10::IValue& value : values) list.push_back(value.to<Element>());
  return list;
}

std::optional<c10::IValue> list_value(const Value& list, const std::vector<c10::IValue>& values) {
  const auto element = list.type()->expectRef<c10::ListType>().getElementType();
  switch (element->kind()) {
    case c10::TypeKind::IntType:
      return typed_list<std::int64_t>(values);
    case c10::TypeKind::FloatType:
      return typed_list<double>(values);
    case c10::TypeKind::BoolType:
      return typed_list<bool>(values);
    case c10::TypeKind::TensorType:
      return typed_list<at::Tensor>(values);
    case c10::TypeKind::OptionalType:
      return typed_list<std::optional<at::Tensor>>(values);
    default:
      return std::nullopt;
  }
}

class KnownValues {
 public:
  KnownValues(const Trace& trace, const Operands& operands) : trace_(trace), operands_(operands) {}

  /// The value of an argument, if it is the same in every run of the model.
  std::optional<c10::IValue> of(const Value* value) const {
    if (trace_.following.contains(value)) return std::nullopt;
    const auto operand = operands_.find(value);
    if (operand != operands_.end()) {
      if (!operand->second.constant.defined()) return std::nullopt;
      return operand->second.constant;
    }
    if (value->node()->kind() != c10::prim::ListConstruct) return torch::jit::toIValue(value);
    std::vector<c10::IValue> members;
    for (const Value* each : value->node()->inputs()) {
      auto member = of(each);
      if (!member) return std::nullopt;
      members.push_back(*std::move(member));
    }
    return list_value(*value, members);
  }

 private:
  const Trace& trace_;
  const Operands& operands_;
};

// The name of the first parameter among the arguments.
std::string wish_of(const Node& node, const Operands& operands) {
  for (const Value* input : node.inputs()) {
    const auto found = operands.find(input);
    if (found != operands.end() && !found->second.wish.empty()) return found->second.wish;
  }
  return "";
}

Operand folded(const at::Tensor& result, const std::string& wish, const Node& node,
               const std::vector<c10::IValue>& arguments) {
  const bool unchanged =
      std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& argument) {
        return argument.isTensor() && argument.toTensor().is_same(result);
      });
  const std::string name =
      wish.empty() || unchanged ? wish : wish + "." + node.kind().toUnqualString();
  return {.constant = result, .wish = name};
}

}  // namespace

bool fold(const Node& node, const Trace& trace, Operands& operands) {
  if (!node.kind().is_aten() || node.isNondeterministic() || node.maybeOperator() == nullptr) {
    return false;
  }
  const KnownValues known(trace, operands);
  torch::jit::Stack stack;
  for (const Value* input : node.inputs()) {
    auto value = known.of(input);
    if (!value) return false;
    stack.push_back(*std::move(value));
  }
  const bool in_place = std::string_view(node.kind().toUnqualString()).ends_with('_');
  if (in_place && !stack.empty() && stack[0].isTensor()) stack[0] = stack[0].toTensor().clone();
  const std::vector<c10::IValue> arguments = stack;
  const at::NoGradGuard no_grad;
  node.getOperation()(stack);
  const std::string wish = wish_of(node, operands);
  for (std::size_t k = 0; k < node.outputs().size() && k < stack.size(); ++k) {
    if (stack[k].isTensor()) {
      operands[node.output(k)] = folded(stack[k].toTensor(), wish, node, arguments);
      continue;
    }
    Operand list;
    for (const at::Tensor& member : stack[k].toTensorVector()) {
      list.members.push_back(folded(member, wish, node, arguments));
    }
    operands[node.output(k)] = std::move(list);
  }
  return true;
}

}  // namespace lockstep::onnx
