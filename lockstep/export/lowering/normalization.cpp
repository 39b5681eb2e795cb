// Normalisations over the batch's statistics, channels, groups and layers.
#include <limits>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

at::Tensor or_filled(const std::optional<at::Tensor>& tensor, const at::Tensor& like,
                     double value) {
  return tensor ? tensor->to(at::kDouble) : at::full_like(like, value, at::kDouble);
}

// An affine argument that may be None: the tensor itself, or `count` ones or zeros.
std::string affine_or(RecordedOperation& op, std::size_t i, std::int64_t count, double value) {
  if (op.has(i)) return op.tensor(i);
  return op.graph().constant(at::full({count}, value, op.result_type()), "");
}

// Folds batch normalisation into the preceding convolution by changing its weights: (w x + b -
// mean) / sqrt(var + eps) * gamma + beta.
bool fold_into_convolution(RecordedOperation& op) {
  const torch::jit::Value* const input = op.node().input(0);
  const torch::jit::Node& source = *input->node();
  const std::string_view kind = source.kind().toQualString();
  if (input->uses().size() != 1 || kind != "aten::_convolution") return false;
  RecordedOperation convolution = op.at(source);
  const bool transposed = convolution.flag(6);
  const auto weight = convolution.known(1);
  OnnxNode* const node = op.graph().maker(op.tensor(0));
  if (!weight || node == nullptr || !node->op_type.starts_with("Conv") ||
      (convolution.has(2) && !convolution.known(2)) || (op.has(1) && !op.known(1)) ||
      (op.has(2) && !op.known(2)) || (transposed && convolution.integer(8) != 1)) {
    return false;
  }
  const at::Tensor mean = op.known(3)->to(at::kDouble);
  const at::Tensor deviation = (op.known(4)->to(at::kDouble) + op.number(7)).sqrt();
  const auto gamma = op.has(1) ? op.known(1) : std::nullopt;
  const auto beta = op.has(2) ? op.known(2) : std::nullopt;
  const at::Tensor scale = or_filled(gamma, mean, 1) / deviation;
  const auto bias = convolution.has(2) ? convolution.known(2) : std::nullopt;
  const at::Tensor shift = (or_filled(bias, mean, 0) - mean) * scale + or_filled(beta, mean, 0);
  std::vector<std::int64_t> along(static_cast<std::size_t>(weight->dim()), 1);
  along[transposed ? 1 : 0] = -1;
  const at::Tensor folded = weight->to(at::kDouble) * scale.view(along);

  const std::string name = convolution.wish(1);
  const auto dot = name.rfind('.');
  const std::string bias_name = (dot == std::string::npos ? "" : name.substr(0, dot + 1)) + "bias";
  const std::string new_weight = op.graph().constant(folded.to(weight->scalar_type()), name);
  const std::string new_bias = op.graph().constant(shift.to(weight->scalar_type()), bias_name);
  node->inputs = {node->inputs[0], new_weight, new_bias};
  op.bind(node->outputs[0]);
  return true;
}

// batch_norm(input, weight, bias, mean, var, training, momentum, eps, cudnn)
void lower_batch_norm(RecordedOperation& op, const Operator&) {
  if (op.flag(5) || !op.has(3) || !op.has(4)) {
    op.reject(
        "it normalises by the batch's own statistics; export in eval mode, with running ones");
  }
  if (!op.known(3) || !op.known(4)) op.reject("its running statistics are not buffers");
  if (op.fold_batch_norm() && fold_into_convolution(op)) return;
  const std::int64_t channels = op.known(3)->size(0);
  op.result("BatchNormalization",
            {op.tensor(0), affine_or(op, 1, channels, 1), affine_or(op, 2, channels, 0),
             op.tensor(3), op.tensor(4)},
            {{"epsilon", op.number(7)}});
}

// instance_norm(input, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn)
void lower_instance_norm(RecordedOperation& op, const Operator& entry) {
  const bool own_statistics = op.flag(5);
  if (!own_statistics && (!op.has(3) || !op.has(4))) op.reject("it has no statistics to use");
  const std::int64_t channels = op.fixed(op.sizes(0).at(1), "the number of channels");
  const std::string scale = affine_or(op, 1, channels, 1);
  const std::string shift = affine_or(op, 2, channels, 0);
  if (own_statistics) {
    return op.result("InstanceNormalization", {op.tensor(0), scale, shift},
                     {{"epsilon", op.number(7)}});
  }
  op.result("BatchNormalization", {op.tensor(0), scale, shift, op.tensor(3), op.tensor(4)},
            {{"epsilon", op.number(7)}});
}

// layer_norm(input, normalized_shape, weight, bias, eps, cudnn)
void lower_layer_norm(RecordedOperation& op, const Operator&) {
  const auto shape = op.integers(1);
  const std::string scale =
      op.has(2) ? op.tensor(2) : op.graph().constant(at::ones(shape, op.result_type()), "");
  op.result(
      "LayerNormalization", {op.tensor(0), scale, op.tensor(3)},
      {{"axis", -static_cast<std::int64_t>(shape.size())}, {"epsilon", op.number_or(4, 1e-5)}});
}

// rms_norm(input, normalized_shape, weight, eps): x / sqrt(mean(x^2) + eps) * weight
void lower_rms_norm(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  std::vector<std::int64_t> axes;
  const auto count = static_cast<std::int64_t>(op.integers(1).size());
  for (std::int64_t d = -count; d < 0; ++d) axes.push_back(d);
  const double eps = op.number_or(3, type == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon());
  const std::string x = op.widened(op.tensor(0), type);
  const std::string mean = op.reduce("ReduceMean", op.add("Mul", {x, x}), axes, /*keep=*/true);
  const std::string root = op.add("Sqrt", {op.add("Add", {mean, op.wide_scalar(eps, type)})});
  const std::string normal = op.narrowed(op.add("Div", {x, root}), type);
  op.bind(op.has(2) ? op.add("Mul", {normal, op.tensor(2)}) : normal);
}

// group_norm(input, num_groups, weight, bias, eps, cudnn): each group is normalised like an
// instance. ONNX's GroupNormalization had a scale per group, not per channel, before opset 21.
void lower_group_norm(RecordedOperation& op, const Operator&) {
  const Extents& sizes = op.sizes(0);
  const std::int64_t groups = op.integer(1);
  const std::int64_t channels = op.fixed(sizes.at(1), "the number of channels");
  std::int64_t rest = channels / groups;
  for (std::size_t d = 2; d < sizes.size(); ++d) rest *= op.fixed(sizes[d], "an image's size");
  const Extents grouped = {sizes[0], static_extent(groups), static_extent(rest)};
  const at::Tensor one = at::ones({groups}, op.result_type());
  const std::string normal =
      op.add("InstanceNormalization",
             {op.reshape(op.tensor(0), grouped), op.graph().constant(one, ""),
              op.graph().constant(at::zeros_like(one), "")},
             {{"epsilon", op.number_or(4, 1e-5)}});
  std::string result = op.reshape(normal, sizes);
  Extents along = {static_extent(channels)};
  for (std::size_t d = 2; d < sizes.size(); ++d) along.push_back(static_extent(1));
  const auto spread = [&](std::size_t i) {
    return sizes.size() == 2 ? op.tensor(i) : op.reshape(op.tensor(i), along);
  };
  if (op.has(2)) result = op.add("Mul", {result, spread(2)});
  if (op.has(3)) result = op.add("Add", {result, spread(3)});
  op.bind(result);
}

constexpr Operator kNormalization[] = {
    {"batch_norm", lower_batch_norm},       {"group_norm", lower_group_norm},
    {"instance_norm", lower_instance_norm}, {"layer_norm", lower_layer_norm},
    {"rms_norm", lower_rms_norm},
};

}  // namespace

Family normalization_operators() { return kNormalization; }

}  // namespace lockstep::onnx
