// Exports every case for onnx_oracle.py.
//
// Usage: export_models FOLDER operators|modules|nets|large
//
// Writes for each case a file CASE.safetensors with inputs and LibTorch's outputs for several batch
// sizes ("batch7.input.0", "batch7.output.0"), and for each opset a model CASE.opset17.onnx. Prints
// one line per model: its file, the seconds that the export took, and its processor seconds. Exits
// with 1 if a case cannot be exported, with a line on stderr for each such case. For modules, whose
// table says which are refused, the reason is in the metadata of CASE.safetensors instead.
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/safetensors.h>
#include <tests/export/export_case.h>
#include <tests/support/processor_time.h>

namespace {

using namespace lockstep;
using namespace lockstep::testing_support;

const std::map<std::string, std::vector<ExportCase> (*)()> kCases = {{"operators", operator_cases},
                                                                     {"modules", module_cases},
                                                                     {"nets", net_cases},
                                                                     {"large", large_cases}};

const char* safetensors_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "F32";
    case torch::kFloat64:
      return "F64";
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

void write_expected(const std::filesystem::path& folder, const ExportCase& each,
                    const std::string& refusal) {
  const torch::NoGradGuard no_grad;
  each.module->eval();
  TensorFile file;
  for (const std::int64_t batch : {2, 1, 7}) {
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
              {"relative_to", each.adds_terms ? "largest" : "element"},
              {"signed_zeros", each.signed_zeros ? "yes" : "no"},
              {"dynamic_batch", each.options.dynamic_batch ? "yes" : "no"},
              {"is_module", each.module_options ? "yes" : "no"},
              {"module_options", each.module_options.value_or("")},
              {"refusal", refusal}});
}

void write_models(const std::filesystem::path& folder, const ExportCase& each) {
  for (const int opset : {17, 18, 19, 20}) {
    if (opset < each.first_opset) continue;
    OnnxExportOptions options = each.options;
    options.opset = opset;
    const std::string name = lockstep::str(each.name, ".opset", opset, ".onnx");
    const Tensors inputs = each.make_inputs(each.example_batch);
    const double processor = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const Clock::time_point begin = Clock::now();
    export_onnx(*each.module, each.forward, inputs, folder / name, options);
    std::cout << name << ' ' << seconds_since(begin) << ' '
              << processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor << '\n';
  }
}

// The reason why a module is refused; empty if it is not.
std::string refusal_of(const std::filesystem::path& folder, const ExportCase& each) {
  try {
    write_models(folder, each);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void write_case(const std::filesystem::path& folder, const ExportCase& each, bool may_refuse) {
  if (may_refuse) return write_expected(folder, each, refusal_of(folder, each));
  write_expected(folder, each, "");
  write_models(folder, each);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || !kCases.contains(argv[2])) {
    std::cerr << "usage: export_models FOLDER operators|modules|nets|large\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  int failed = 0;
  for (const ExportCase& each : kCases.at(argv[2])()) {
    try {
      write_case(folder, each, argv[2] == std::string("modules"));
    } catch (const std::exception& error) {
      std::cerr << each.name << ": " << lockstep::first_line(error) << '\n';
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
