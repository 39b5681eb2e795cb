#include <lockstep/export/lowering/recorded_operation.h>

#include <functional>
#include <utility>

#include <torch/csrc/jit/ir/constants.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Value;

constexpr const char* kFollowsTheBatch =
    "an argument follows the batch, which ONNX takes as a fixed number here";

bool is_tensor_value(const Value* value) {
  return value->type()->cast<c10::TensorType>() != nullptr;
}

bool is_none_value(const Value* value) {
  return value->node()->kind() == c10::prim::Constant && value->node()->mustBeNone();
}

at::ScalarType scalar_type_of(const Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  if (type == nullptr || !type->scalarType()) throw Unsupported("the type of a tensor is unknown");
  return *type->scalarType();
}

// A number, possibly in a tensor without dimensions. A number that follows the batch is known only
// in the recorded run, and would become a constant of the model.
c10::IValue known_value(const Value* value, const Trace& trace, const Operands& operands) {
  if (trace.following.contains(value)) throw Unsupported(kFollowsTheBatch);
  const auto operand = operands.find(value);
  if (operand != operands.end() && operand->second.constant.defined()) {
    return operand->second.constant;
  }
  const auto constant = torch::jit::toIValue(value);
  if (!constant) throw Unsupported("an argument is known only when the model runs");
  return *constant;
}

c10::Scalar scalar_in(const Value* value, const Trace& trace, const Operands& operands) {
  const c10::IValue known = known_value(value, trace, operands);
  if (known.isScalar()) return known.toScalar();
  if (known.isBool()) return known.toBool();
  if (known.isTensor() && known.toTensor().numel() == 1) return known.toTensor().item();
  throw Unsupported(str("an argument is ", known.tagKind(), " where a number was expected"));
}

// The members of a constant list, or of one made from single values.
template <class Member>
std::vector<Member> members_of(const Value* list, const std::function<Member(const Value*)>& member,
                               const std::function<Member(const c10::IValue&)>& constant) {
  std::vector<Member> members;
  if (list->node()->kind() == c10::prim::ListConstruct) {
    for (const Value* each : list->node()->inputs()) members.push_back(member(each));
    return members;
  }
  const auto known = torch::jit::toIValue(list);
  if (!known || !known->isList()) throw Unsupported("an argument is not a list of numbers");
  for (const c10::IValue& each : known->toListRef()) members.push_back(constant(each));
  return members;
}

}  // namespace

bool RecordedOperation::has(std::size_t i) const {
  return i < arguments() && !is_none_value(input(i));
}

bool RecordedOperation::is_tensor(std::size_t i) const {
  return has(i) && is_tensor_value(input(i));
}

bool RecordedOperation::is_list(std::size_t i) const {
  return has(i) && input(i)->type()->kind() == c10::TypeKind::ListType;
}

std::string RecordedOperation::materialize(const Value* value) {
  const auto found = operands_.find(value);
  if (found == operands_.end()) throw Unsupported("an argument is not a tensor");
  return named(found->second);
}

// In a graph of float16, some operations compute in float32, and read the results of the others
// converted.
std::string RecordedOperation::named(const Operand& operand) {
  if (operand.constant.defined()) return builder_.constant(operand.constant, operand.wish);
  if (operand.name.empty()) throw Unsupported("an argument is not a tensor");
  return operand.is_float32 ? builder_.cast(operand.name, builder_.type_of(at::kFloat))
                            : operand.name;
}

std::string RecordedOperation::tensor(std::size_t i) {
  return has(i) ? materialize(input(i)) : std::string();
}

std::string RecordedOperation::tensor_as(std::size_t i, at::ScalarType type) {
  if (!is_tensor(i)) {
    return builder_.constant(at::scalar_tensor(scalar_in(input(i), trace_, operands_), type), "");
  }
  const auto operand = operands_.find(input(i));
  if (operand != operands_.end() && operand->second.constant.defined() &&
      scalar_type_of(input(i)) != type) {
    const Operand& known = operand->second;
    return builder_.constant(known.constant.to(type), known.wish);
  }
  return cast(tensor(i), scalar_type_of(input(i)), type);
}

Names RecordedOperation::tensors(std::size_t i) {
  Names names;
  const Value* const list = input(i);
  if (list->node()->kind() == c10::prim::ListConstruct) {
    for (const Value* each : list->node()->inputs()) {
      names.push_back(is_none_value(each) ? std::string() : materialize(each));
    }
    return names;
  }
  const auto found = operands_.find(list);
  if (found == operands_.end()) throw Unsupported("an argument is not a list of tensors");
  for (const Operand& member : found->second.members) names.push_back(named(member));
  return names;
}

const Operand* RecordedOperation::operand(const Value* value) const {
  const auto found = operands_.find(value);
  return found == operands_.end() ? nullptr : &found->second;
}

std::optional<at::Tensor> RecordedOperation::known(std::size_t i) const {
  const auto found = operands_.find(input(i));
  if (found == operands_.end() || !found->second.constant.defined()) return std::nullopt;
  return found->second.constant;
}

std::string RecordedOperation::wish(std::size_t i) const { return operands_.at(input(i)).wish; }

c10::Scalar RecordedOperation::scalar(std::size_t i) const {
  return scalar_in(input(i), trace_, operands_);
}

std::int64_t RecordedOperation::integer(std::size_t i) const {
  return scalar_in(input(i), trace_, operands_).toLong();
}

std::int64_t RecordedOperation::integer_or(std::size_t i, std::int64_t otherwise) const {
  return has(i) ? integer(i) : otherwise;
}

double RecordedOperation::number(std::size_t i) const {
  return scalar_in(input(i), trace_, operands_).toDouble();
}

double RecordedOperation::number_or(std::size_t i, double otherwise) const {
  return has(i) ? number(i) : otherwise;
}

bool RecordedOperation::flag(std::size_t i) const {
  return scalar_in(input(i), trace_, operands_).toBool();
}

std::string RecordedOperation::text(std::size_t i) const {
  return known_value(input(i), trace_, operands_).toStringRef();
}

at::ScalarType RecordedOperation::scalar_type_or(std::size_t i, at::ScalarType otherwise) const {
  return has(i) ? static_cast<at::ScalarType>(integer(i)) : otherwise;
}

Extent RecordedOperation::extent(std::size_t i) const {
  const auto following = trace_.following.find(input(i));
  return following == trace_.following.end() ? static_extent(integer(i)) : following->second;
}

Extents RecordedOperation::extents(std::size_t i) const {
  if (!is_list(i)) return {extent(i)};
  return members_of<Extent>(
      input(i),
      [this](const Value* value) {
        const auto following = trace_.following.find(value);
        return following == trace_.following.end()
                   ? static_extent(scalar_in(value, trace_, operands_).toLong())
                   : following->second;
      },
      [](const c10::IValue& value) { return static_extent(value.toInt()); });
}

std::vector<std::int64_t> RecordedOperation::integers(std::size_t i) const {
  std::vector<std::int64_t> numbers;
  for (const Extent& each : extents(i)) {
    if (!each.is_static()) throw Unsupported(kFollowsTheBatch);
    numbers.push_back(each.size);
  }
  return numbers;
}

std::vector<double> RecordedOperation::numbers(std::size_t i) const {
  return members_of<double>(
      input(i),
      [this](const Value* value) { return scalar_in(value, trace_, operands_).toDouble(); },
      [](const c10::IValue& value) { return value.toScalar().toDouble(); });
}

const Extents& RecordedOperation::sizes_of(const Value* value) const {
  const auto found = trace_.sizes.find(value);
  if (found == trace_.sizes.end()) throw Unsupported("the sizes of a tensor are unknown");
  return found->second;
}

const Extents& RecordedOperation::sizes(std::size_t i) const { return sizes_of(input(i)); }

std::vector<Extents> RecordedOperation::sizes_of_members(std::size_t i) const {
  std::vector<Extents> sizes;
  if (input(i)->node()->kind() != c10::prim::ListConstruct) return sizes;
  for (const Value* each : input(i)->node()->inputs()) sizes.push_back(sizes_of(each));
  return sizes;
}

at::ScalarType RecordedOperation::type(std::size_t i) const { return scalar_type_of(input(i)); }

const Extents& RecordedOperation::result_sizes(std::size_t k) const {
  return sizes_of(node_.output(k));
}

at::ScalarType RecordedOperation::result_type(std::size_t k) const {
  return scalar_type_of(node_.output(k));
}

bool RecordedOperation::is_used(std::size_t k) const { return node_.output(k)->hasUses(); }

// Sizes are aligned from the last dimension on; a size of 1 gives way to the other.
Extents RecordedOperation::broadcast_sizes(std::size_t i, std::size_t j) const {
  Extents result = sizes(i);
  Extents other = sizes(j);
  if (result.size() < other.size()) std::swap(result, other);
  const std::size_t offset = result.size() - other.size();
  for (std::size_t d = 0; d < other.size(); ++d) {
    if (result[offset + d] == static_extent(1)) result[offset + d] = other[d];
  }
  return result;
}

std::int64_t RecordedOperation::axis(std::int64_t dimension, std::int64_t rank) const {
  if (rank == 0) reject("a dimension of a tensor without dimensions");
  return dimension < 0 ? dimension + rank : dimension;
}

std::int64_t RecordedOperation::fixed(const Extent& extent, const std::string& what) const {
  if (!extent.is_static()) reject(what + " follows the batch; expected a fixed size");
  return extent.size;
}

std::vector<Extents> RecordedOperation::list_sizes() const {
  const Value* const list = node_.output(0);
  if (list->uses().size() != 1 || list->uses().front().user->kind() != c10::prim::ListUnpack) {
    throw Unsupported("its list of tensors is used as a whole");
  }
  std::vector<Extents> sizes;
  for (const Value* member : list->uses().front().user->outputs()) {
    sizes.push_back(sizes_of(member));
  }
  return sizes;
}

void RecordedOperation::bind(const std::string& name, std::size_t k) {
  const at::ScalarType type = result_type(k);
  const ElementType got = builder_.type_of(name);
  if (got != builder_.type_of(type) && got != ElementType::kUndefined) {
    throw Unsupported(str("its lowering is not for arguments of this type: the result would be ",
                          type_name(got), ", expected ", type_name(builder_.type_of(type))));
  }
  operands_[node_.output(k)] = {.name = name, .is_float32 = type == at::kFloat};
}

void RecordedOperation::bind_list(const Names& names) {
  const auto& uses = node_.output(0)->uses();
  const torch::jit::Node* const user = uses.empty() ? nullptr : uses.front().user;
  const bool is_unpacked = user != nullptr && user->kind() == c10::prim::ListUnpack;
  Operand list;
  for (std::size_t k = 0; k < names.size(); ++k) {
    const bool is_float32 = is_unpacked && k < user->outputs().size()
                                ? scalar_type_of(user->output(k)) == at::kFloat
                                : is_tensor(0) && type(0) == at::kFloat;
    list.members.push_back({.name = names[k], .is_float32 = is_float32});
  }
  operands_[node_.output(0)] = std::move(list);
}

std::string RecordedOperation::cast(const std::string& name, at::ScalarType from,
                                    at::ScalarType to) {
  if (from == to) return name;
  const bool may_be_large = from == at::kShort || from == at::kInt || from == at::kLong;
  if (builder_.half() && to == at::kFloat && may_be_large) {
    throw BeyondFloat16("whole numbers become float16");
  }
  return builder_.cast(name, builder_.type_of(to));
}

std::string RecordedOperation::widened(const std::string& name, at::ScalarType type) {
  if (builder_.type_of(type) != ElementType::kFloat16) return name;
  return builder_.cast(name, ElementType::kFloat);
}

std::string RecordedOperation::narrowed(const std::string& name, at::ScalarType type) {
  return builder_.cast(name, builder_.type_of(type));
}

std::string RecordedOperation::wide_scalar(double value, at::ScalarType type) {
  const at::ScalarType wide = type == at::kHalf ? at::kFloat : type;
  return builder_.constant(at::full({}, value, wide), "", /*keep_float=*/true);
}

std::string RecordedOperation::slice(const std::string& name, std::int64_t axis, std::int64_t begin,
                                     std::int64_t end, std::int64_t step) {
  return add("Slice", {name, builder_.integers({begin}), builder_.integers({end}),
                       builder_.integers({axis}), builder_.integers({step})});
}

std::string RecordedOperation::reduce(const std::string& op_type, const std::string& name,
                                      std::vector<std::int64_t> axes, bool keep) {
  Attributes attributes = {{"keepdims", keep ? 1 : 0}};
  if (axes.empty()) return add(op_type, {name}, attributes);
  if (opset() >= 18 || op_type == "ReduceSum") {
    return add(op_type, {name, builder_.integers(axes)}, attributes);
  }
  attributes.emplace_back("axes", std::move(axes));
  return add(op_type, {name}, attributes);
}

}  // namespace lockstep::onnx
