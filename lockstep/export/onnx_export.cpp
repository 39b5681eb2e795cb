#include <lockstep/export/onnx_export.h>

#include <set>

#include <torch/version.h>

#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
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
      if (buffer.defined()) buffers_.push_back({buffer, buffer.clone(), buffer._version()});
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

void check(const OnnxExportOptions& options, const std::vector<torch::Tensor>& inputs) {
  const OptionCheck check("export_onnx");
  check.in_range("opset", options.opset, 17, 20);
  check.positive("most_bytes_in_one_file", static_cast<double>(options.most_bytes_in_one_file));
  if (inputs.empty()) throw ConfigError("export_onnx: there must be an example input");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) throw ConfigError(str("export_onnx: input ", i, " is undefined"));
  }
}

// A diverged run leaves NaN or infinite weights. In buffers, such as masks, infinity is common.
bool holds_usable_values(const torch::Tensor& tensor, bool is_buffer) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
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
  check(options, inputs);
  const UnchangedModule unchanged(module);
  const torch::NoGradGuard no_grad;
  warn_of_divergence(module);
  const onnx::NamedParameters parameters = named_parameters_of(module);
  const onnx::Trace trace = onnx::trace_module(forward, inputs, parameters,
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
