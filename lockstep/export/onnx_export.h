// A module as an ONNX model, without Python.
//
//   resnet->eval();
//   const OnnxExport model = export_onnx(resnet, {torch::randn({1, 3, 224, 224})}, "resnet.onnx");
//
// The module's forward is recorded by LibTorch's tracer, and each recorded operation is lowered to
// ONNX's (docs/onnx_operators.md lists them). A trace cannot see a branch on data, a number that
// was read from a tensor, or a size that was read from an input. Therefore forward() runs several
// times, with other values and other batch sizes, and what differs is refused with its place in the
// module: an exported model computes what the module does for any batch, or there is none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/error.h>

namespace lockstep {

struct OnnxExportOptions {
  int opset = 20;  ///< version of ONNX's operators, 17 to 20
  /// The model takes batches of any size. Off: of the examples' alone.
  bool dynamic_batch = true;
  /// The dimension of each input that is the batch, -1 for an input without one; empty: the first.
  std::vector<std::int64_t> batch_dimensions{};
  /// Sizes that forward() reads from its inputs follow the batch where the runs show how, instead
  /// of being refused. They always do in torch::nn::MultiheadAttention, LSTM, GRU and RNN. Numbers
  /// in arithmetic never do.
  bool follow_batch = false;
  /// Accept that forward() reads values out of tensors, as for a check of its own. Without it that
  /// is refused even where the runs showed no difference: a branch that none of them took is not
  /// seen.
  bool allow_reads = false;
  /// Parameters and arithmetic in float16. Inputs and outputs stay float32.
  bool half = false;
  /// Batch normalisation behind a convolution becomes part of its weights.
  bool fold_batch_norm = true;
  std::vector<std::string> input_names{};   ///< empty: "input", or "input_0", "input_1", ...
  std::vector<std::string> output_names{};  ///< empty: "output", or "output_0", "output_1", ...
  /// Parameters of more bytes than this are stored in a file of their own, PATH.CHECKSUM.data.
  /// Protobuf limits a file to 2 GiB.
  std::int64_t most_bytes_in_one_file = 2'000'000'000;
};

/// What was written.
struct OnnxExport {
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  std::int64_t nodes = 0;                 ///< operators in the graph
  std::int64_t bytes = 0;                 ///< of the model with its external data
  std::filesystem::path external_data{};  ///< empty where the model is one file
};

/// What export_onnx() traces: the outputs for inputs like the examples.
using OnnxForward =
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>& inputs)>;

/// Exports what `forward` computes with `module`, whose parameters and buffers become the model's
/// initializers under their names. For a forward() with other arguments than tensors, which a
/// lambda binds. The module runs in eval mode, without gradients, on the device that it is on; its
/// mode and buffers are restored, also when an exception passes; parameters that forward() itself
/// writes to, as Embedding with max_norm does, are not. Readers of `path` see the old file or the
/// new one, and an interruption leaves one of them with its external data. Behind the export the
/// external data of the old model is gone: whoever opened that model and not yet its data cannot
/// find it.
///
/// ConfigError for options out of range, for operators without a lowering, of which it lists all
/// with their places, and for what a trace cannot see. DataError when the file cannot be written.
/// Uses the tracer of the calling thread; no other thread may use the module meanwhile.
OnnxExport export_onnx(torch::nn::Module& module, const OnnxForward& forward,
                       const std::vector<torch::Tensor>& inputs, const std::filesystem::path& path,
                       const OnnxExportOptions& options = {});

namespace onnx {

/// Appends the defined tensors of what a forward() returns: a tensor, or a tuple, pair, vector or
/// optional of such.
inline void append_outputs(const torch::Tensor& output, std::vector<torch::Tensor>& to) {
  if (output.defined()) to.push_back(output);
}
template <class First, class Second>
void append_outputs(const std::pair<First, Second>& outputs, std::vector<torch::Tensor>& to);
template <class... Members>
void append_outputs(const std::tuple<Members...>& outputs, std::vector<torch::Tensor>& to);
template <class Member>
void append_outputs(const std::vector<Member>& outputs, std::vector<torch::Tensor>& to);
template <class Member>
void append_outputs(const std::optional<Member>& output, std::vector<torch::Tensor>& to) {
  if (output) append_outputs(*output, to);
}
template <class First, class Second>
void append_outputs(const std::pair<First, Second>& outputs, std::vector<torch::Tensor>& to) {
  append_outputs(outputs.first, to);
  append_outputs(outputs.second, to);
}
template <class... Members>
void append_outputs(const std::tuple<Members...>& outputs, std::vector<torch::Tensor>& to) {
  std::apply([&to](const auto&... members) { (append_outputs(members, to), ...); }, outputs);
}
template <class Member>
void append_outputs(const std::vector<Member>& outputs, std::vector<torch::Tensor>& to) {
  for (const auto& member : outputs) append_outputs(member, to);
}

template <class Module, std::size_t... I>
bool forward_with(Module& module, const std::vector<torch::Tensor>& inputs,
                  std::vector<torch::Tensor>& outputs, std::index_sequence<I...>) {
  if constexpr (requires { module.forward(inputs[I]...); }) {
    append_outputs(module.forward(inputs[I]...), outputs);
    return true;
  } else {
    return false;
  }
}

/// Calls module.forward() with all of `inputs`, where there are `kCount` and it takes that number.
template <std::size_t kCount, class Module>
bool forward_with(Module& module, const std::vector<torch::Tensor>& inputs,
                  std::vector<torch::Tensor>& outputs) {
  return inputs.size() == kCount &&
         forward_with(module, inputs, outputs, std::make_index_sequence<kCount>());
}

}  // namespace onnx

/// Exports a module holder (made by TORCH_MODULE) or a shared pointer to a module, whose forward()
/// takes up to six tensors: one for each of `inputs`. Tuples and lists that it returns become
/// several outputs, undefined tensors none. As above for the rest.
template <class ModuleHolder>
  requires requires(ModuleHolder& net) { *net; }
OnnxExport export_onnx(ModuleHolder& net, const std::vector<torch::Tensor>& inputs,
                       const std::filesystem::path& path, const OnnxExportOptions& options = {}) {
  auto& module = *net;
  const OnnxForward forward = [&module](const std::vector<torch::Tensor>& given) {
    std::vector<torch::Tensor> outputs;
    const bool called = onnx::forward_with<1>(module, given, outputs) ||
                        onnx::forward_with<2>(module, given, outputs) ||
                        onnx::forward_with<3>(module, given, outputs) ||
                        onnx::forward_with<4>(module, given, outputs) ||
                        onnx::forward_with<5>(module, given, outputs) ||
                        onnx::forward_with<6>(module, given, outputs);
    if (!called) {
      throw ConfigError(str("export_onnx: forward() does not take ", given.size(),
                            " tensors; give one example for each of its arguments, or a function "
                            "that calls it"));
    }
    return outputs;
  };
  return export_onnx(static_cast<torch::nn::Module&>(module), forward, inputs, path, options);
}

}  // namespace lockstep
