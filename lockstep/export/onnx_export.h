// Exports a module as an ONNX model, without Python.
//
//   resnet->eval();
//   const OnnxExport model = export_onnx(resnet, {torch::randn({1, 3, 224, 224})}, "resnet.onnx");
//
// LibTorch's tracer records the module's forward, and each recorded operation is lowered to ONNX
// operators (docs/onnx_operators.md lists them). A trace cannot see a branch on data, a number that
// was read from a tensor, or a size that was read from an input. export_onnx() therefore runs
// forward() several times, with different values and batch sizes, and rehearses it without
// computing for many more batch sizes. If the runs differ, it throws an error that names the place
// in the module: either the exported model computes what the module does for any batch, or the
// export fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/declarations/forward.h>
#include <lockstep/core/error.h>
#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API OnnxExportOptions {
  int opset = 20;  ///< version of ONNX's operators, 17 to 20
  /// Whether the model takes batches of any size. If false, it takes only the batch size of the
  /// examples.
  bool dynamic_batch = true;
  /// The batch dimension of each input, -1 for an input without one; empty: the first dimension.
  std::vector<std::int64_t> batch_dimensions{};
  /// Lets sizes that forward() reads from its inputs follow the batch size if the runs show how. If
  /// false, such sizes are refused, except in torch::nn::MultiheadAttention, LocalResponseNorm,
  /// LSTM, GRU, RNN and their cells, where they always follow it. Numbers used in arithmetic never
  /// follow it.
  bool follow_batch = false;
  /// Allows forward() to read values out of tensors and to access their memory, for example for its
  /// own checks. If false, this is refused even if the runs showed no difference, because a trace
  /// cannot see a branch that no run took.
  bool allow_reads = false;
  /// Stores the parameters and computes in float16. Inputs and outputs stay float32, and so do
  /// operations with constants that float16 cannot hold.
  bool half = false;
  /// Folds batch normalisation after a convolution into the convolution's weights.
  bool fold_batch_norm = true;
  std::vector<std::string> input_names{};   ///< empty: "input", or "input_0", "input_1", ...
  std::vector<std::string> output_names{};  ///< empty: "output", or "output_0", "output_1", ...
  /// Entries for the model's metadata, by name. "libtorch", the version of LibTorch, is always
  /// among them.
  std::map<std::string, std::string> metadata{};
  /// Parameters larger than this are stored in a separate file, PATH.CHECKSUM.data. Protobuf limits
  /// a file to 2 GiB.
  std::int64_t most_bytes_in_one_file = 2'000'000'000;
};

/// Describes the exported model.
struct LOCKSTEP_API OnnxExport {
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  std::int64_t nodes = 0;                 ///< operators in the graph
  std::int64_t bytes = 0;                 ///< size of the model, including its external data
  std::filesystem::path external_data{};  ///< empty if the model is one file
};

/// The function that export_onnx() traces: returns the outputs for inputs like the examples.
using OnnxForward =
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>& inputs)>;

/// Exports what `forward` computes with `module`, whose parameters and buffers become the model's
/// initializers under their names. Use it for a forward() with arguments that are not tensors: a
/// lambda can bind them. The module runs in eval mode, without gradients and outside of the
/// caller's inference mode, on its current device. Its mode and buffers are restored, also after an
/// exception; parameters to which forward() itself writes, as Embedding with max_norm does, are
/// not. Readers of `path` see the old file or the new one, and an interruption leaves one of them
/// with its external data. After the export the external data of the old model is removed: a reader
/// that opened the old model but not yet its data cannot find that data.
///
/// Throws ConfigError for options out of range, for inputs or outputs that no model can have
/// (sparse, quantized, nested, complex, float8, on the meta device, or no output at all), for
/// operators without a lowering (it lists all of them with their places), and for anything that a
/// trace cannot see, such as the casts of autocast. Exceptions of your own that `forward` throws
/// for `inputs` pass through. A c10::Error is nested (std::rethrow_if_nested) in a ConfigError that
/// says for which inputs and where `forward` failed, and so is any exception that it throws for
/// other inputs, which the export makes. Throws DataError if the file cannot be written. Uses the
/// tracer of the calling thread; no other thread may use the module meanwhile.
LOCKSTEP_API OnnxExport export_onnx(torch::nn::Module& module, const OnnxForward& forward,
                                    const std::vector<torch::Tensor>& inputs,
                                    const std::filesystem::path& path,
                                    const OnnxExportOptions& options = {});

namespace detail {

/// Appends the defined tensors of a forward()'s result: a tensor, or a tuple, pair, vector or
/// optional of tensors, arbitrarily nested.
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

/// Calls module.forward() with `inputs`, one for each of its arguments, or as a list.
template <class Module>
bool forward_with_all(Module& module, const std::vector<torch::Tensor>& inputs,
                      std::vector<torch::Tensor>& outputs) {
  static_assert(!forward_takes_anything<Module, torch::Tensor>(),
                "the module has no forward() whose parameter has a declared type, a tensor or a "
                "list of them, so that it is not known what it must get; declare the type, or give "
                "export_onnx() a function that calls it");
  const auto append = [&outputs](const auto& result) { append_outputs(result, outputs); };
  if (forward_one_by_one(module, inputs, append)) return true;
  if constexpr (requires { module.forward(inputs); }) {
    append(module.forward(inputs));
    return true;
  } else {
    return false;
  }
}

}  // namespace detail

/// Exports a module holder (made by TORCH_MODULE) or a shared pointer to a module, whose forward()
/// takes up to six tensors, one for each of `inputs`, or a list of them. If forward() accepts both
/// one tensor and a list, as a template may, this does not compile. Returned tuples and lists
/// become several outputs; undefined tensors are dropped. Otherwise like the function above.
template <class ModuleHolder>
  requires requires(ModuleHolder& net) { *net; }
OnnxExport export_onnx(ModuleHolder& net, const std::vector<torch::Tensor>& inputs,
                       const std::filesystem::path& path, const OnnxExportOptions& options = {}) {
  auto& module = *net;
  const OnnxForward forward = [&module](const std::vector<torch::Tensor>& given) {
    std::vector<torch::Tensor> outputs;
    if (!detail::forward_with_all(module, given, outputs)) {
      throw ConfigError(str("export_onnx: forward() does not take ", given.size(),
                            " tensors; give one example for each of its arguments (more than ",
                            detail::kMostForwardArguments,
                            " must be one argument, a list of tensors), or a function that calls "
                            "it"));
    }
    return outputs;
  };
  return export_onnx(static_cast<torch::nn::Module&>(module), forward, inputs, path, options);
}

}  // namespace lockstep
