#include <lockstep/export/onnx_export.h>

#include <set>

#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/version.h>

#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/export/lowering/graph_builder.h>
#include <lockstep/export/lowering/translate.h>
#include <lockstep/export/onnx/onnx_file.h>
#include <lockstep/export/trace/trace.h>

namespace lockstep {
namespace {

// Restores what tracing may change, including buffers to which forward() writes.
class UnchangedModule {
 public:
  explicit UnchangedModule(torch::nn::Module& module) {
    modes_.emplace_back(&module, module.is_training());
    // Listing the module itself too would need a shared pointer to it, which its owner may not
    // have.
    for (const auto& each : module.modules(/*include_self=*/false)) {
      modes_.emplace_back(each.get(), each->is_training());
    }
    for (const torch::Tensor& buffer : module.buffers()) {
      // Buffers that were made in inference mode have no version, and refuse to be written to.
      if (!buffer.defined() || buffer.is_inference()) continue;
      buffers_.push_back({buffer, buffer.clone(), buffer._version()});
    }
    module.eval();
  }
  ~UnchangedModule() {
    // train() also changes the submodules, which come later in this list and are restored then.
    for (const auto& [module, training] : modes_) {
      if (module->is_training() != training) module->train(training);
    }
    const torch::NoGradGuard no_grad;
    for (const auto& [buffer, value, version] : buffers_) {
      if (buffer._version() != version) buffer.copy_(value);
    }
  }
  UnchangedModule(const UnchangedModule&) = delete;
  UnchangedModule& operator=(const UnchangedModule&) = delete;

 private:
  struct SavedBuffer {
    torch::Tensor buffer;
    torch::Tensor value;
    std::int64_t version;
  };

  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<SavedBuffer> buffers_;
};

onnx::NamedParameters named_parameters_of(const torch::nn::Module& module) {
  onnx::NamedParameters parameters;
  std::set<const void*> seen;  // tied parameters get the name of the first
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
        parameters.emplace_back(item.key(), item.value());
      }
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return parameters;
}

// Whether a model can have tensors of this type.
bool is_known_type(torch::ScalarType type) {
  try {
    onnx::element_type(type);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Throws if a model cannot take or return tensors such as this one: `name` is "input 0".
void require_plain(const std::string& name, const torch::Tensor& tensor) {
  std::string found;
  if (tensor.is_quantized()) {
    found = str("quantized (", c10::toString(tensor.scalar_type()),
                "), expected plain numbers, as dequantize() returns");
  } else if (tensor.is_nested()) {
    found = "a nested tensor, expected a dense one, as to_padded_tensor() returns";
  } else if (tensor.layout() != torch::kStrided) {
    found = lockstep::str("of layout ", tensor.layout(),
                          ", expected a dense tensor, as to_dense() returns");
  } else if (!is_known_type(tensor.scalar_type())) {
    found = str("of type ", c10::toString(tensor.scalar_type()),
                ", which ONNX export does not know; expected float32, float64, float16, bfloat16, "
                "bool, uint8, or int8 to int64");
  }
  if (!found.empty()) throw ConfigError(str("export_onnx: ", name, " is ", found));
}

void require_values(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.is_meta()) return;
  throw ConfigError(str("export_onnx: ", name,
                        " is on the meta device, which holds no values; expected a tensor with "
                        "values, as on the processor"));
}

void check(const OnnxExportOptions& options, const std::vector<torch::Tensor>& inputs,
           const std::filesystem::path& path) {
  if (torch::jit::tracer::isTracing()) {
    throw ConfigError(
        "export_onnx: it was called inside of a forward() that is being exported or traced, and "
        "LibTorch traces one at a time; export before or after it");
  }
  const OptionCheck check("export_onnx");
  if (path.empty()) throw ConfigError("export_onnx: the path of the model is empty");
  check.in_range("opset", options.opset, 17, 20);
  check.positive("most_bytes_in_one_file", static_cast<double>(options.most_bytes_in_one_file));
  if (inputs.empty()) throw ConfigError("export_onnx: there must be an example input");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) throw ConfigError(str("export_onnx: input ", i, " is undefined"));
    require_plain(str("input ", i), inputs[i]);
    require_values(str("input ", i), inputs[i]);
  }
}

// Calls forward(), and checks what it returns.
std::vector<torch::Tensor> outputs_of(const OnnxForward& forward,
                                      const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> outputs = forward(inputs);
  if (outputs.empty()) {
    throw ConfigError("export_onnx: forward() returns no tensor; a model needs an output");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) {
      throw ConfigError(
          str("export_onnx: output ", i, " is undefined; forward() must not return it"));
    }
    require_plain(str("output ", i), outputs[i]);
  }
  return outputs;
}

// A diverged run leaves NaN or infinite weights. In buffers, such as masks, infinity is common.
bool holds_usable_values(const torch::Tensor& tensor, bool is_buffer) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
  // LibTorch cannot look into these, and a model cannot hold them.
  if (tensor.layout() != torch::kStrided || c10::isFloat8Type(tensor.scalar_type())) return true;
  return is_buffer ? !tensor.isnan().any().item<bool>() : tensor.isfinite().all().item<bool>();
}

// Names the first tensor that is not finite.
void warn_of_divergence(const torch::nn::Module& module) {
  std::vector<std::string> names;
  const auto look_at = [&](const auto& named, bool are_buffers) {
    for (const auto& item : named) {
      const torch::Tensor& tensor = item.value();
      const bool usable = !tensor.defined() || holds_usable_values(tensor, are_buffers);
      if (!usable) names.push_back(item.key());
    }
  };
  look_at(module.named_parameters(), false);
  look_at(module.named_buffers(), true);
  if (names.empty()) return;
  log_warning("export_onnx: ", names.front(), " holds values that are not finite",
              names.size() == 1 ? "" : str(", as do ", names.size() - 1, " other tensors"),
              "; the training had probably diverged, and the outputs of the model will hardly be "
              "finite");
}

std::vector<std::string> value_names(const std::vector<onnx::ValueInfo>& values) {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& value : values) names.push_back(value.name);
  return names;
}

}  // namespace

OnnxExport export_onnx(torch::nn::Module& module, const OnnxForward& forward,
                       const std::vector<torch::Tensor>& inputs, const std::filesystem::path& path,
                       const OnnxExportOptions& options) {
  check(options, inputs, path);
  // The runs are then alike whether or not the caller is in inference mode.
  const c10::InferenceMode no_inference(false);
  const UnchangedModule unchanged(module);
  const torch::NoGradGuard no_grad;
  const onnx::NamedParameters parameters = named_parameters_of(module);
  for (const auto& [name, tensor] : parameters) {
    require_values("parameter or buffer " + name, tensor);
  }
  warn_of_divergence(module);
  const OnnxForward checked = [&forward](const std::vector<torch::Tensor>& given) {
    return outputs_of(forward, given);
  };
  const onnx::Trace trace = onnx::trace_module(checked, inputs, parameters,
                                               {.dynamic_batch = options.dynamic_batch,
                                                .batch_dimensions = options.batch_dimensions,
                                                .follow_batch = options.follow_batch,
                                                .allow_reads = options.allow_reads});
  onnx::Model model = onnx::translate(trace, parameters,
                                      {.opset = options.opset,
                                       .half = options.half,
                                       .fold_batch_norm = options.fold_batch_norm,
                                       .input_names = options.input_names,
                                       .output_names = options.output_names});
  model.producer_name = "lockstep";
  model.metadata = options.metadata;
  model.metadata["libtorch"] = TORCH_VERSION;
  model.graph.name = module.name();
  const onnx::WrittenModel written = onnx::write_model(path, model, options.most_bytes_in_one_file);
  return {.inputs = value_names(model.graph.inputs),
          .outputs = value_names(model.graph.outputs),
          .nodes = static_cast<std::int64_t>(model.graph.nodes.size()),
          .bytes = written.bytes,
          .external_data = written.data};
}

}  // namespace lockstep
