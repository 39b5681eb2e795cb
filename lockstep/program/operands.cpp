#include <lockstep/program/operands.h>

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include <lockstep/core/strings.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/torch_names.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using c10::TypeKind;
using formats::printable;

template <class... Values>
[[noreturn]] void unfit(const Values&... values) {
  throw UnfitArgument(str(values...));
}

Operand constant(IValue value) {
  Operand result;
  result.constant = std::move(value);
  return result;
}

c10::TypePtr without_optional(c10::TypePtr type) {
  while (type->kind() == TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType();
  }
  return type;
}

// Symbolic numbers are plain ones at run time.
c10::TypePtr list_item_type(const c10::TypePtr& type) {
  switch (type->kind()) {
    case TypeKind::SymIntType:
      return c10::IntType::get();
    case TypeKind::SymFloatType:
      return c10::FloatType::get();
    case TypeKind::SymBoolType:
      return c10::BoolType::get();
    default:
      return type;
  }
}

}  // namespace

Operand OperandMaker::in_register(const std::string& name) const {
  Operand result;
  result.kind = Operand::Kind::kRegister;
  const auto found = registers_.find(name);
  if (found == registers_.end()) unfit("uses '", printable(name), "', which is not defined");
  result.index = found->second;
  return result;
}

Operand OperandMaker::untyped(const Argument& argument) const {
  return std::visit(
      [&](const auto& value) -> Operand {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, None>) {
          return constant({});
        } else if constexpr (std::is_same_v<Type, TensorName> || std::is_same_v<Type, NumberName>) {
          return in_register(value.name);
        } else if constexpr (std::is_same_v<Type, bool> || std::is_same_v<Type, std::int64_t> ||
                             std::is_same_v<Type, double> || std::is_same_v<Type, std::string>) {
          return constant(value);
        } else if constexpr (std::is_same_v<Type, ComplexNumber>) {
          return constant(c10::complex<double>(value.real, value.imaginary));
        } else if constexpr (std::is_same_v<Type, ScalarTypeCode>) {
          return constant(static_cast<std::int64_t>(type(value)));
        } else if constexpr (std::is_same_v<Type, DeviceName>) {
          return constant(device(value));
        } else {
          unfit("an argument has an unexpected kind");
        }
      },
      argument.value);
}

c10::ScalarType OperandMaker::type(ScalarTypeCode code) const {
  if (scalar_type_info(code) == nullptr) unfit("the dtype ", code.code, " is not supported");
  const c10::ScalarType result = scalar_type(code);
  const bool follows = c10::isFloatingType(result) && result == from_.type;
  return follows ? to_.type : result;
}

c10::Device OperandMaker::device(const DeviceName& name) const {
  c10::Device result(name.type);
  const bool follows = result.type() == from_.device.type();
  if (follows) return to_.device;
  if (name.index) result.set_index(static_cast<c10::DeviceIndex>(*name.index));
  return result;
}

Operand OperandMaker::typed(const Argument& argument, const c10::TypePtr& wanted,
                            std::optional<std::int32_t> repeated) const {
  if (std::holds_alternative<None>(argument.value)) return constant({});
  const c10::TypePtr type = without_optional(wanted);
  if (type->kind() == TypeKind::ListType) return typed_list(argument, type, repeated);
  if (const auto* code = std::get_if<MemoryFormatCode>(&argument.value)) {
    static constexpr c10::MemoryFormat formats[] = {
        c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
        c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve};
    if (code->code < 1 || code->code > 4) unfit("the memory format ", code->code, " is unknown");
    return constant(static_cast<std::int64_t>(formats[code->code - 1]));
  }
  if (const auto* code = std::get_if<LayoutCode>(&argument.value)) {
    if (code->code != 7) unfit("only dense tensors are supported");
    return constant(static_cast<std::int64_t>(c10::kStrided));
  }
  if (std::holds_alternative<ArgumentList>(argument.value)) {
    unfit("a list stands where ", type->str(), " was expected");
  }
  Operand result = untyped(argument);
  if (result.kind == Operand::Kind::kRegister) {
    result.as_float = type->kind() == TypeKind::FloatType;
    result.as_tensor =
        type->kind() == TypeKind::TensorType && std::holds_alternative<NumberName>(argument.value);
    return result;
  }
  const IValue& value = result.constant;
  if (type->kind() == TypeKind::TensorType) {
    if (!value.isScalar()) unfit("expected a tensor or a number");
    result.constant = wrapped_number(value);
  } else if (type->kind() == TypeKind::FloatType && (value.isInt() || value.isBool())) {
    result.constant =
        value.isInt() ? static_cast<double>(value.toInt()) : static_cast<double>(value.toBool());
  } else if (type->kind() == TypeKind::IntType && value.isBool()) {
    result.constant = static_cast<std::int64_t>(value.toBool());
  }
  return result;
}

Operand OperandMaker::typed_list(const Argument& argument, const c10::TypePtr& type,
                                 std::optional<std::int32_t> repeated) const {
  const c10::TypePtr item_type = type->castRaw<c10::ListType>()->getElementType();
  Operand result;
  result.kind = Operand::Kind::kList;
  result.list_type = item_type;
  if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
    for (const Argument& item : list->items) result.items.push_back(typed(item, item_type));
  } else {
    if (!repeated) unfit("one value stands where a list was expected");
    result.items.assign(static_cast<std::size_t>(*repeated), typed(argument, item_type));
  }
  const bool is_constant =
      std::all_of(result.items.begin(), result.items.end(),
                  [](const Operand& item) { return item.kind == Operand::Kind::kConstant; });
  if (is_constant) {
    c10::impl::GenericList values(list_item_type(item_type));
    for (const Operand& item : result.items) values.push_back(item.constant);
    return constant(values);
  }
  result.list_type = list_item_type(item_type);
  return result;
}

}  // namespace lockstep::program
