// Convolutions, forward and transposed, in one to three dimensions.
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// The arguments of a convolution, common to all of LibTorch's variants.
struct ConvolutionArguments {
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  bool transposed = false;
  std::vector<std::int64_t> output_padding;
  std::int64_t groups = 1;
};

// A single number applies to all dimensions.
std::vector<std::int64_t> for_each_dimension(std::vector<std::int64_t> values, std::size_t count) {
  if (values.size() == 1) values.resize(count, values.front());
  return values;
}

void emit_convolution(RecordedOperation& op, ConvolutionArguments arguments) {
  const Extents& weight = op.sizes(1);
  const std::size_t spatial = weight.size() - 2;
  const bool has_batch = op.sizes(0).size() == spatial + 2;
  const auto spread = [spatial](std::vector<std::int64_t> values) {
    return for_each_dimension(std::move(values), spatial);
  };
  std::vector<std::int64_t> kernel;
  for (std::size_t d = 0; d < spatial; ++d) kernel.push_back(op.fixed(weight[d + 2], "a kernel"));
  std::vector<std::int64_t> pads = spread(arguments.padding);
  pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  Attributes attributes = {{"kernel_shape", kernel},
                           {"strides", spread(arguments.stride)},
                           {"pads", pads},
                           {"dilations", spread(arguments.dilation)},
                           {"group", arguments.groups}};
  if (arguments.transposed) {
    attributes.emplace_back("output_padding", spread(arguments.output_padding));
  }
  std::string input = op.tensor(0);
  if (!has_batch) input = op.unsqueeze(input, {0});
  const std::string output = op.add(arguments.transposed ? "ConvTranspose" : "Conv",
                                    {input, op.tensor(1), op.tensor(2)}, attributes);
  op.bind(has_batch ? output : op.squeeze(output, {0}));
}

// _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups),
// followed by flags for the backend libraries. All of LibTorch's convolutions are recorded as this
// one.
void lower_convolution(RecordedOperation& op, const Operator&) {
  emit_convolution(op, {.stride = op.integers(3),
                        .padding = op.integers(4),
                        .dilation = op.integers(5),
                        .transposed = op.flag(6),
                        .output_padding = op.integers(7),
                        .groups = op.integer(8)});
}

// _convolution_mode(input, weight, bias, stride, "same" or "valid", dilation, groups). For an even
// kernel, "same" pads one more at the end, which only explicit pads can express.
void lower_convolution_mode(RecordedOperation& op, const Operator&) {
  const Extents& weight = op.sizes(1);
  const std::size_t spatial = weight.size() - 2;
  const auto dilation = for_each_dimension(op.integers(5), spatial);
  std::vector<std::int64_t> begins(spatial, 0);
  std::vector<std::int64_t> ends(spatial, 0);
  std::vector<std::int64_t> kernel;
  for (std::size_t d = 0; d < spatial; ++d) {
    kernel.push_back(op.fixed(weight[d + 2], "a kernel"));
    if (op.text(4) != "same") continue;
    const std::int64_t total = dilation[d] * (kernel[d] - 1);
    begins[d] = total / 2;
    ends[d] = total - begins[d];
  }
  if (op.sizes(0).size() != spatial + 2) op.reject("an input without a batch dimension");
  begins.insert(begins.end(), ends.begin(), ends.end());
  op.result("Conv", {op.tensor(0), op.tensor(1), op.tensor(2)},
            {{"kernel_shape", kernel},
             {"strides", for_each_dimension(op.integers(3), spatial)},
             {"pads", begins},
             {"dilations", dilation},
             {"group", op.integer(6)}});
}

constexpr Operator kConvolution[] = {
    {"_convolution", lower_convolution},
    {"_convolution_mode", lower_convolution_mode},
};

}  // namespace

Family convolution_operators() { return kConvolution; }

}  // namespace lockstep::onnx
