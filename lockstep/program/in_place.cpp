#include <lockstep/program/in_place.h>

#include <ATen/ExpandUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/ops/result_type_native.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/program/instruction.h>

namespace lockstep::program {

/// An elementwise operator that has an in-place form with the same arguments.
struct InPlaceRule {
  /// When the derivative needs the operand that is overwritten. The in-place form then computes the
  /// gradient from a copy of the operand or by another formula, so that it is not called.
  enum class Needs {
    kNever,        ///< it needs only the result, or nothing
    kForTheOther,  ///< the derivative of the other operand needs it
    kAlways,
  };

  std::string_view operation;
  std::string_view overload{};
  Needs needs = Needs::kNever;
  bool is_binary = false;    ///< the second operand is a tensor or a number in its place
  bool commutes = false;     ///< the second operand may be overwritten as well
  bool only_on_cpu = false;  ///< on other devices the two forms draw other random numbers
};

namespace {

using c10::IValue;
using Needs = InPlaceRule::Needs;

// Derivatives: derivatives.yaml of LibTorch. A dropout multiplies by a mask that has no gradient.
constexpr InPlaceRule kInPlaceRules[] = {
    {.operation = "aten::relu"},
    {.operation = "aten::leaky_relu"},
    {.operation = "aten::sigmoid"},
    {.operation = "aten::tanh"},
    {.operation = "aten::dropout", .only_on_cpu = true},
    {.operation = "aten::feature_dropout", .only_on_cpu = true},
    {.operation = "aten::add", .overload = "Tensor", .is_binary = true, .commutes = true},
    {.operation = "aten::sub", .overload = "Tensor", .is_binary = true},
    {.operation = "aten::mul",
     .overload = "Tensor",
     .needs = Needs::kForTheOther,
     .is_binary = true,
     .commutes = true},
    {.operation = "aten::div",
     .overload = "Tensor",
     .needs = Needs::kForTheOther,
     .is_binary = true},
    {.operation = "aten::hardtanh", .needs = Needs::kAlways},
    {.operation = "aten::relu6", .needs = Needs::kAlways},
    {.operation = "aten::elu", .needs = Needs::kAlways},
    {.operation = "aten::silu", .needs = Needs::kAlways},
    {.operation = "aten::gelu", .needs = Needs::kAlways},
    {.operation = "aten::hardswish", .needs = Needs::kAlways},
    {.operation = "aten::hardsigmoid", .needs = Needs::kAlways},
};

// Whether only the arguments of the call refer to `tensor` and to its memory, and an in-place
// operator may change it.
bool is_free(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.use_count() != 1) return false;
  if (!tensor.has_storage() || tensor.storage().use_count() != 1) return false;
  // A part of a larger memory would keep all of it.
  if (tensor.storage_offset() != 0 || tensor.nbytes() != tensor.storage().nbytes()) return false;
  // Memory without an allocator, such as that of torch::from_blob(), belongs to someone else.
  if (tensor.storage().allocator() == nullptr) return false;
  if (!tensor.is_cpu() && !tensor.is_cuda()) return false;
  if (!tensor.is_floating_point() || tensor.dim() == 0 || tensor.numel() == 0) return false;
  if (tensor.is_inference() != c10::InferenceMode::is_enabled()) return false;
  // Without recording, the result of the original operator would have no gradient; and autograd
  // refuses to change a leaf.
  return !tensor.requires_grad() || (torch::GradMode::is_enabled() && !tensor.is_leaf());
}

// Whether `tensor` has the strides that an elementwise operator gives to its result. Those of other
// tensors may differ, also where a size of 1 makes a stride meaningless; operators that are called
// later choose their kernels by them.
bool has_strides_of_results(const torch::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return tensor.strides().equals(c10::contiguous_strides(tensor.sizes()));
  }
  return tensor.dim() == 4 && tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) &&
         tensor.strides().equals(c10::get_channels_last_strides_2d(tensor.sizes()));
}

// Whether the result of a binary operator has the type, sizes and strides of `tensor`.
bool has_form_of_result(const torch::Tensor& tensor, const torch::Tensor& other) {
  // Called without the dispatcher, which costs more than the comparison.
  if (at::native::result_type(tensor, other) != tensor.scalar_type()) return false;
  if (other.dim() == 0) return true;
  if (other.device() != tensor.device()) return false;
  if (other.sizes() == tensor.sizes()) return other.strides() == tensor.strides();
  return tensor.is_contiguous() && other.is_contiguous() && has_strides_of_results(other) &&
         at::is_expandable_to(other.sizes(), tensor.sizes());
}

bool has_gradient(const torch::Tensor& tensor) {
  return torch::GradMode::is_enabled() && tensor.requires_grad();
}

// Whether the in-place form may overwrite arguments[place].
bool can_overwrite(const InPlaceRule& rule, const std::vector<IValue>& arguments,
                   std::size_t place) {
  if (!arguments[place].isTensor()) return false;
  const torch::Tensor& tensor = arguments[place].toTensor();
  if (!is_free(tensor) || !has_strides_of_results(tensor)) return false;
  if (rule.only_on_cpu && !tensor.is_cpu()) return false;
  if (rule.needs == Needs::kAlways && has_gradient(tensor)) return false;
  if (!rule.is_binary) return true;
  const IValue& second = arguments[1 - place];
  if (!second.isTensor() || !second.toTensor().defined()) return false;
  const torch::Tensor& other = second.toTensor();
  if (rule.needs == Needs::kForTheOther && has_gradient(other)) return false;
  return has_form_of_result(tensor, other);
}

const InPlaceRule* rule_of(const c10::OperatorHandle& operation) {
  const c10::OperatorName& name = operation.operator_name();
  const auto found = std::find_if(
      std::begin(kInPlaceRules), std::end(kInPlaceRules), [&](const InPlaceRule& rule) {
        return rule.operation == name.name && rule.overload == name.overload_name;
      });
  return found == std::end(kInPlaceRules) ? nullptr : found;
}

std::optional<double> constant_number(const Operand& operand) {
  if (operand.kind != Operand::Kind::kConstant) return std::nullopt;
  if (!operand.constant.isDouble() && !operand.constant.isInt()) return std::nullopt;
  return operand.constant.toScalar().toDouble();
}

}  // namespace

bool InPlaceCall::prepare(std::vector<IValue>& arguments) const {
  // A trace, such as that of the ONNX export, shows the operators of the file.
  if (at::tracer::impl::is_dispatch_enabled()) return false;
  if (is_last[0] && can_overwrite(*rule, arguments, 0)) return true;
  if (!is_last[1] || !can_overwrite(*rule, arguments, 1)) return false;
  std::swap(arguments[0], arguments[1]);
  return true;
}

void add_in_place_calls(std::vector<Plan::Instruction>& instructions,
                        const std::vector<int>& inputs) {
  for (Plan::Instruction& instruction : instructions) {
    if (instruction.kind != Plan::Instruction::Kind::kOperator) continue;
    const InPlaceRule* rule = rule_of(instruction.operation.front());
    if (rule == nullptr) continue;
    const auto& operands = instruction.operands;
    const auto operation = c10::Dispatcher::singleton().findSchema(
        {str(rule->operation, '_'), std::string(rule->overload)});
    if (!operation || operation->schema().arguments().size() != operands.size()) continue;
    // The gradient of leaky_relu_() is computed from the sign of its result.
    if (rule->operation == "aten::leaky_relu" && constant_number(operands.at(1)).value_or(-1) < 0) {
      continue;
    }
    const auto dies = [&](std::size_t place) {
      const Operand& operand = operands.at(place);
      return operand.kind == Operand::Kind::kRegister && operand.is_last &&
             std::find(inputs.begin(), inputs.end(), operand.index) == inputs.end();
    };
    InPlaceCall call{.operation = *operation, .rule = rule, .is_last = {dies(0), false}};
    // The third operand of add() is the factor of the second one.
    const bool commutes =
        rule->commutes && (operands.size() < 3 || constant_number(operands[2]) == 1);
    if (commutes) call.is_last[1] = dies(1);
    if (call.is_last[0] || call.is_last[1]) instruction.in_place.emplace(std::move(call));
  }
}

}  // namespace lockstep::program
