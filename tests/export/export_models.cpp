// Exports every case for onnx_oracle.py.
//
// Usage: export_models FOLDER operators|nets
//
// For each case a file CASE.safetensors with inputs and LibTorch's outputs for several batch sizes
// ("batch7.input.0", "batch7.output.0"), and for each opset a model CASE.opset17.onnx. Ends with 1,
// and a line for each, when a case cannot be exported.
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/formats/safetensors.h>
#include <tests/export/export_case.h>

namespace {

using namespace lockstep;
using namespace lockstep::testing_support;

constexpr std::int64_t kTracedBatch = 2;

const char* safetensors_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "F32";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kBool:
      return "BOOL";
    default:
      throw DataError(lockstep::str("no case gives tensors of type ", c10::toString(type)));
  }
}

class TensorFile {
 public:
  void add(const std::string& name, const torch::Tensor& tensor) {
    const torch::Tensor& kept = kept_.emplace_back(tensor.detach().contiguous());
    views_[name] = {.dtype = safetensors_name(kept.scalar_type()),
                    .shape = kept.sizes().vec(),
                    .bytes = {static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()}};
  }
  void write(const std::filesystem::path& path, const SafetensorsMetadata& metadata) const {
    write_safetensors(path, views_, metadata);
  }

 private:
  std::vector<torch::Tensor> kept_;
  TensorViews views_;
};

void write_expected(const std::filesystem::path& folder, const ExportCase& each) {
  const torch::NoGradGuard no_grad;
  each.module->eval();
  TensorFile file;
  for (const std::int64_t batch : {kTracedBatch, std::int64_t{1}, std::int64_t{7}}) {
    const Tensors inputs = each.make_inputs(batch);
    const std::string prefix = "batch" + std::to_string(batch);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      file.add(prefix + ".input." + std::to_string(i), inputs[i]);
    }
    const Tensors outputs = each.forward(inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      file.add(prefix + ".output." + std::to_string(i), outputs[i]);
    }
    if (!each.options.dynamic_batch) break;
  }
  file.write(folder / (each.name + ".safetensors"),
             {{"operator", each.op},
              {"tolerance", lockstep::str(each.tolerance)},
              {"dynamic_batch", each.options.dynamic_batch ? "yes" : "no"}});
}

void write_models(const std::filesystem::path& folder, const ExportCase& each) {
  for (const int opset : {17, 18, 19, 20}) {
    if (opset < each.first_opset) continue;
    OnnxExportOptions options = each.options;
    options.opset = opset;
    const std::string name = lockstep::str(each.name, ".opset", opset, ".onnx");
    export_onnx(*each.module, each.forward, each.make_inputs(kTracedBatch), folder / name, options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: export_models FOLDER operators|nets\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const bool nets = std::strcmp(argv[2], "nets") == 0;
  int failed = 0;
  for (const ExportCase& each : nets ? net_cases() : operator_cases()) {
    try {
      write_expected(folder, each);
      write_models(folder, each);
    } catch (const std::exception& error) {
      std::cerr << each.name << ": " << lockstep::first_line(error) << '\n';
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
