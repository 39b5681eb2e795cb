#include <lockstep/export/trace/sizes_without_data.h>

#include <exception>
#include <string>
#include <utility>

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/runtime/interpreter.h>

namespace lockstep::onnx {
namespace {

// An argument for a kernel without data.
c10::IValue on_meta(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  }
  if (!value.isList()) return value;
  const c10::List<c10::IValue> list = value.toList();
  c10::impl::GenericList result(list.elementType());
  for (const c10::IValue& member : list) result.push_back(on_meta(member));
  return result;
}

// An entry of a list that has one for each dimension, or one for all.
std::vector<std::int64_t> for_dimensions(const c10::IValue& list, std::size_t dimensions) {
  std::vector<std::int64_t> values = list.toIntVector();
  if (values.size() == 1) values.resize(dimensions, values[0]);
  return values;
}

// LibTorch's kernels for convolutions without data are written in Python. The sizes of transposed
// convolutions always follow those of the input.
std::optional<std::vector<std::int64_t>> sizes_of_convolution(
    const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  const bool has_mode = name == "aten::_convolution_mode";
  if (!has_mode && name != "aten::_convolution") return std::nullopt;
  const at::IntArrayRef input = arguments[0].toTensor().sizes();
  const std::size_t dimensions = input.size() - 2;
  const auto stride = for_dimensions(arguments[3], dimensions);
  std::vector<std::int64_t> padding(dimensions, 0);
  if (has_mode) {
    if (arguments[4].toStringRef() != "valid") return std::nullopt;
  } else {
    if (arguments[6].toBool()) return std::nullopt;
    padding = for_dimensions(arguments[4], dimensions);
  }
  return at::native::conv_output_size(input, arguments[1].toTensor().sizes(), padding, stride,
                                      for_dimensions(arguments[5], dimensions));
}

}  // namespace

std::optional<std::vector<std::vector<std::int64_t>>> sizes_without_data(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  // Recurrent layers read the sizes of packed sequences, which a tensor on meta does not have.
  if (op.schema().argumentIndexWithName("batch_sizes")) return std::nullopt;
  std::vector<std::vector<std::int64_t>> sizes;
  if (auto convolved = sizes_of_convolution(op.schema().name(), arguments)) {
    sizes.push_back(std::move(*convolved));
    return sizes;
  }
  try {
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool is_device = op.schema().arguments()[i].name() == "device";
      stack.push_back(is_device ? c10::IValue(c10::Device(at::kMeta)) : on_meta(arguments[i]));
    }
    op.callBoxed(stack);
    for (const c10::IValue& result : stack) {
      if (result.isTensor()) sizes.push_back(result.toTensor().sizes().vec());
      if (!result.isTensorList()) continue;
      for (const at::Tensor& member : result.toTensorVector())
        sizes.push_back(member.sizes().vec());
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return sizes;
}

}  // namespace lockstep::onnx
