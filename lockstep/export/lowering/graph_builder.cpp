#include <lockstep/export/lowering/graph_builder.h>

#include <algorithm>

#include <torch/types.h>

#include <lockstep/core/error.h>

namespace lockstep::onnx {
namespace {

// Constants up to this size are compared by value, larger ones by tensor identity.
constexpr std::size_t kMostBytesCompared = 256;

// Whether float16 holds the values of a float32 tensor but for rounding. Single parameters may
// vanish beside larger ones, as when any model is rounded. A number in the code may not, since its
// purpose is to be different from zero.
bool is_in_range_of_half(const at::Tensor& tensor, bool is_parameter) {
  constexpr double kLargest = 65504;
  constexpr double kSmallestNormal = 6.103515625e-05;
  const at::Tensor sizes = tensor.abs();
  const at::Tensor finite = sizes.masked_select(sizes.isfinite().logical_and(sizes > 0));
  if (finite.numel() == 0) return true;
  const at::Tensor smallest = is_parameter ? finite.max() : finite.min();
  return finite.max().item<double>() <= kLargest && smallest.item<double>() >= kSmallestNormal;
}

}  // namespace

ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ElementType::kFloat;
    case at::kByte:
      return ElementType::kUint8;
    case at::kChar:
      return ElementType::kInt8;
    case at::kShort:
      return ElementType::kInt16;
    case at::kInt:
      return ElementType::kInt32;
    case at::kLong:
      return ElementType::kInt64;
    case at::kBool:
      return ElementType::kBool;
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kDouble:
      return ElementType::kDouble;
    case at::kBFloat16:
      return ElementType::kBfloat16;
    default:
      throw ConfigError(str("export_onnx: tensors of type ", c10::toString(type),
                            " have no counterpart in ONNX"));
  }
}

ElementType GraphBuilder::type_of(at::ScalarType type) const {
  return half() && type == at::kFloat ? ElementType::kFloat16 : element_type(type);
}

ElementType GraphBuilder::type_of(const std::string& name) const {
  const auto found = types_.find(name);
  return found == types_.end() ? ElementType::kUndefined : found->second;
}

std::string GraphBuilder::unique_name(const std::string& wish) {
  std::string name = wish;
  for (int number = 1; !names_.insert(name).second; ++number) name = str(wish, '.', number);
  return name;
}

void GraphBuilder::require_one_type(const std::string& op_type, const Names& inputs) const {
  const ElementType type = type_of(inputs.at(deciding_input(op_type)));
  for (const std::size_t i : inputs_of_one_type(op_type, inputs.size())) {
    const ElementType other = type_of(inputs[i]);
    if (other == type || other == ElementType::kUndefined) continue;
    throw Unsupported(str("its arguments are of the types ", type_name(type), " and ",
                          type_name(other), ", which ONNX's ", op_type, " does not take together"));
  }
}

Names GraphBuilder::add(const std::string& op_type, Names inputs, Attributes attributes,
                        std::size_t outputs) {
  const ElementType type = type_of(inputs.at(deciding_input(op_type)));
  if (type == ElementType::kUndefined) {  // the result of an operation that was refused
    return append(op_type, std::move(inputs), std::move(attributes), outputs);
  }
  require_one_type(op_type, inputs);
  const auto computable = computable_type(op_type, type, opset_);
  if (!computable) {
    throw Unsupported(str("onnxruntime has no ", op_type, " for values of type ", type_name(type)));
  }
  if (*computable == type) {
    return append(op_type, std::move(inputs), std::move(attributes), outputs);
  }
  for (const std::size_t i : inputs_of_one_type(op_type, inputs.size())) {
    if (!inputs[i].empty()) inputs[i] = cast(inputs[i], *computable);
  }
  Names results = append(op_type, std::move(inputs), std::move(attributes), outputs);
  for (std::string& result : results) {
    if (type_of(result) == *computable) result = cast(result, type);
  }
  return results;
}

std::string GraphBuilder::cast(const std::string& name, ElementType type) {
  if (type_of(name) == type) return name;
  return add("Cast", {name}, {{"to", static_cast<std::int64_t>(type)}});
}

Names GraphBuilder::append(const std::string& op_type, Names inputs, Attributes attributes,
                           std::size_t outputs) {
  std::vector<ElementType> types;
  for (const std::string& input : inputs) types.push_back(type_of(input));
  const std::string base = scope_.empty() ? op_type : scope_ + "/" + op_type;
  const int count = counters_[base]++;
  OnnxNode node{.op_type = op_type,
                .name = count == 0 ? base : str(base, '_', count),
                .inputs = std::move(inputs),
                .attributes = std::move(attributes)};
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  for (std::size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back(unique_name(i == 0 ? node.name : str(node.name, ':', i)));
  }
  const auto results = output_types(node, types, outputs);
  for (std::size_t i = 0; i < outputs; ++i) types_[node.outputs[i]] = results[i];
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

std::string GraphBuilder::add(const std::string& op_type, Names inputs, Attributes attributes) {
  return add(op_type, std::move(inputs), std::move(attributes), 1).front();
}

std::string GraphBuilder::constant(const at::Tensor& tensor, const std::string& wish,
                                   bool keep_float) {
  // A lazy conjugate or negative is only a mark, which a model does not have.
  at::Tensor values = tensor.detach().resolve_conj().resolve_neg().cpu();
  if (half() && values.scalar_type() == at::kFloat && !keep_float) {
    if (!is_in_range_of_half(values, !wish.empty())) {
      throw BeyondFloat16("a constant is beyond the range of float16");
    }
    values = values.to(at::kHalf);
  }
  const auto owner = std::make_shared<at::Tensor>(values.contiguous());
  TensorData data{
      .type = element_type(owner->scalar_type()),
      .sizes = owner->sizes().vec(),
      .bytes = {static_cast<const std::byte*>(owner->const_data_ptr()), owner->nbytes()},
      .owner = owner};
  const std::string content =
      data.bytes.size() <= kMostBytesCompared && wish.empty()
          ? std::string(reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size())
          : lockstep::str(static_cast<const void*>(tensor.unsafeGetTensorImpl()), ' ', wish);
  const std::string key =
      str(static_cast<int>(data.type), ' ', join(data.sizes, "x"), ' ', keep_float, ' ', content);
  const auto [known, is_new] = constants_.try_emplace(key);
  if (!is_new) return known->second;
  data.name = unique_name(wish.empty() ? str("constant_", constants_.size()) : wish);
  if (!wish.empty() && data.name != wish) wishes_[data.name] = wish;
  types_[data.name] = data.type;
  known->second = data.name;
  kept_.push_back(tensor);
  graph_.initializers.push_back(std::move(data));
  return known->second;
}

std::string GraphBuilder::integers(const std::vector<std::int64_t>& values) {
  return constant(at::tensor(values, at::kLong), "");
}

std::string GraphBuilder::scalar(double value, at::ScalarType type) {
  return constant(at::full({}, value, type), "");
}

void GraphBuilder::set_batch_source(std::string input, std::int64_t dimension) {
  batch_input_ = std::move(input);
  batch_dimension_ = dimension;
}

std::string GraphBuilder::batch() {
  if (!batch_.empty()) return batch_;
  LOCKSTEP_CHECK(!batch_input_.empty(), "a size follows the batch, but no input has one");
  batch_ =
      add("Shape", {batch_input_}, {{"start", batch_dimension_}, {"end", batch_dimension_ + 1}});
  return batch_;
}

std::string GraphBuilder::sizes(const Extents& extents) {
  const bool is_static = std::all_of(extents.begin(), extents.end(),
                                     [](const Extent& extent) { return extent.is_static(); });
  std::vector<std::int64_t> numbers;
  for (const Extent& extent : extents) numbers.push_back(extent.size);
  if (is_static) return integers(numbers);
  Names parts;
  for (const Extent& extent : extents) {
    if (extent.is_static()) {
      parts.push_back(integers({extent.size}));
      continue;
    }
    std::string part = batch();
    if (extent.per_batch != 1) part = add("Mul", {part, integers({extent.per_batch})});
    if (extent.offset != 0) part = add("Add", {part, integers({extent.offset})});
    parts.push_back(part);
  }
  return parts.size() == 1 ? parts.front() : add("Concat", parts, {{"axis", 0}});
}

// For Reshape, a size of 0 means the input's size in that dimension, unless allowzero makes it a
// literal 0, which then excludes a -1.
std::string GraphBuilder::reshape(const std::string& name, const Extents& extents) {
  std::vector<std::int64_t> numbers;
  int following = 0;
  for (const Extent& extent : extents) {
    following += extent.is_static() ? 0 : 1;
    numbers.push_back(extent.is_static() ? extent.size : -1);
  }
  const bool has_zero = std::find(numbers.begin(), numbers.end(), 0) != numbers.end();
  if (following <= 1 && !has_zero) return add("Reshape", {name, integers(numbers)});
  return add("Reshape", {name, sizes(extents)}, {{"allowzero", 1}});
}

OnnxNode* GraphBuilder::maker(const std::string& name) {
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (std::find(node->outputs.begin(), node->outputs.end(), name) != node->outputs.end()) {
      return &*node;
    }
  }
  return nullptr;
}

void GraphBuilder::keep_nodes(std::size_t count) {
  graph_.nodes.resize(count);
  if (maker(batch_) == nullptr) batch_.clear();
}

void GraphBuilder::remove_unused() {
  std::set<std::string> used;
  for (const ValueInfo& output : graph_.outputs) used.insert(output.name);
  std::vector<OnnxNode> kept;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (std::none_of(node->outputs.begin(), node->outputs.end(),
                     [&](const std::string& name) { return used.contains(name); })) {
      continue;
    }
    used.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  graph_.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(graph_.initializers,
                [&](const TensorData& tensor) { return !used.contains(tensor.name); });
  rename_to_wishes();
}

void GraphBuilder::rename_to_wishes() {
  std::set<std::string> taken;
  for (const ValueInfo& input : graph_.inputs) taken.insert(input.name);
  for (const OnnxNode& node : graph_.nodes) taken.insert(node.outputs.begin(), node.outputs.end());
  for (const TensorData& tensor : graph_.initializers) taken.insert(tensor.name);
  std::unordered_map<std::string, std::string> new_names;
  for (TensorData& tensor : graph_.initializers) {
    const auto wish = wishes_.find(tensor.name);
    if (wish == wishes_.end() || !taken.insert(wish->second).second) continue;
    new_names[tensor.name] = wish->second;
    tensor.name = wish->second;
  }
  for (OnnxNode& node : graph_.nodes) {
    for (std::string& input : node.inputs) {
      const auto found = new_names.find(input);
      if (found != new_names.end()) input = found->second;
    }
  }
}

}  // namespace lockstep::onnx
