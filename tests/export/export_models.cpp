// Exports every case for onnx_oracle.py.
//
// Usage: export_models FOLDER operators|modules|nets|large|types [OPSET...]
//
// Writes for each case a file CASE.safetensors with inputs and LibTorch's outputs for several batch
// sizes ("batch7.input.0", "batch7.output.0"), and for each opset a model CASE.opset17.onnx. Prints
// one line per model: its file, the seconds that the export took, and its processor seconds. Exits
// with 1 if a case cannot be exported, with a line on stderr for each such case. For modules, whose
// table says which are refused, the reason is in the metadata of CASE.safetensors instead.
//
// With "types", the operators' cases are exported for each type of elements, as CASE.TYPE. A case
// that LibTorch itself refuses for a type has no files. A model that export_onnx() refuses has the
// line "refused FILE: MESSAGE" instead.
#include <algorithm>
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
    case torch::kFloat16:
      return "F16";
    case torch::kUInt8:
      return "U8";
    case torch::kInt8:
      return "I8";
    case torch::kInt16:
      return "I16";
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
              {"negligible", lockstep::str(each.negligible)},
              {"signed_zeros", each.signed_zeros ? "yes" : "no"},
              {"half", each.options.half ? "yes" : "no"},
              {"dynamic_batch", each.options.dynamic_batch ? "yes" : "no"},
              {"is_module", each.module_options ? "yes" : "no"},
              {"module_options", each.module_options.value_or("")},
              {"refusal", refusal}});
}

// Exports into a folder of its own first: export_onnx() looks through all files beside a model for
// old data, and `folder` holds thousands.
void write_models(const std::filesystem::path& folder, const ExportCase& each,
                  const std::vector<int>& opsets, bool may_refuse) {
  const std::filesystem::path own = folder / "new";
  std::filesystem::create_directory(own);
  for (const int opset : opsets) {
    if (opset < each.first_opset && !may_refuse) continue;
    OnnxExportOptions options = each.options;
    options.opset = opset;
    const std::string name = lockstep::str(each.name, ".opset", opset, ".onnx");
    const Tensors inputs = each.make_inputs(each.example_batch);
    const double processor = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const Clock::time_point begin = Clock::now();
    try {
      export_onnx(*each.module, each.forward, inputs, own / name, options);
    } catch (const ConfigError& error) {
      if (!may_refuse) throw;
      std::cout << "refused " << name << ": " << lockstep::first_line(error) << '\n';
      continue;
    }
    std::cout << name << ' ' << seconds_since(begin) << ' '
              << processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor << '\n';
    for (const auto& file : std::filesystem::directory_iterator(own)) {
      std::filesystem::rename(file, folder / file.path().filename());
    }
  }
}

struct ElementType {
  const char* name;
  torch::ScalarType type;
  bool half_option = false;
  double tolerance = 1e-5;
};

const ElementType kElementTypes[] = {{"float", torch::kFloat32},
                                     {"half", torch::kFloat32, true, 1e-2},
                                     {"float16", torch::kFloat16, false, 1e-2},
                                     {"double", torch::kFloat64, false, 1e-7},
                                     {"int32", torch::kInt32},
                                     {"int64", torch::kInt64},
                                     {"bool", torch::kBool},
                                     {"uint8", torch::kUInt8}};

// Values of the same order of magnitude.
torch::Tensor converted(const torch::Tensor& values, torch::ScalarType type) {
  if (!values.is_floating_point() || torch::isFloatingType(type)) return values.to(type);
  if (type == torch::kBool) return values > 0;
  const torch::Tensor whole = (values * 3).round();
  return (type == torch::kUInt8 ? whole.abs() : whole).to(type);
}

// The case with another type of elements. Whole numbers beside floats are indices, and stay.
ExportCase with_type(ExportCase each, const ElementType& type) {
  const Tensors example = each.make_inputs(1);
  const bool has_floats = std::any_of(example.begin(), example.end(),
                                      [](const auto& input) { return input.is_floating_point(); });
  for (MakeInput& make : each.inputs) {
    make = [make, has_floats, type](std::int64_t batch) {
      const torch::Tensor values = make(batch);
      if (!values.is_floating_point()) return has_floats ? values : converted(values, type.type);
      const torch::Tensor result = converted(values, type.type);
      // The model rounds its inputs, which a comparison or a remainder may show.
      return type.half_option ? result.to(torch::kHalf).to(torch::kFloat32) : result;
    };
  }
  if (torch::isFloatingType(type.type)) each.module->to(type.type);
  each.options.half = type.half_option;
  each.name = lockstep::str(each.name, '.', type.name);
  const bool is_original = type.type == torch::kFloat32 && !type.half_option;
  each.tolerance = is_original ? std::max(each.tolerance, type.tolerance) : type.tolerance;
  // Where terms of about 1 cancel out, the result is as precise as they are.
  const bool is_half = type.half_option || type.type == torch::kFloat16;
  each.negligible = std::max(each.negligible, is_half ? 0.1 : 1e-2);
  return each;
}

int write_types(const std::filesystem::path& folder, const std::vector<int>& opsets) {
  int failed = 0;
  for (const ElementType& type : kElementTypes) {
    for (const ExportCase& original : operator_cases()) {
      const ExportCase each = with_type(original, type);
      try {
        write_expected(folder, each, "");
      } catch (const std::exception&) {  // not for this type
        std::filesystem::remove(folder / (each.name + ".safetensors"));
        continue;
      }
      try {
        write_models(folder, each, opsets, /*may_refuse=*/true);
      } catch (const std::exception& error) {
        std::cerr << each.name << ": " << lockstep::first_line(error) << '\n';
        ++failed;
      }
    }
  }
  return failed;
}

// The reason why a module is refused; empty if it is not.
std::string refusal_of(const std::filesystem::path& folder, const ExportCase& each,
                       const std::vector<int>& opsets) {
  try {
    write_models(folder, each, opsets, /*may_refuse=*/false);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

int write_cases(const std::filesystem::path& folder, const std::vector<ExportCase>& cases,
                const std::vector<int>& opsets) {
  int failed = 0;
  for (const ExportCase& each : cases) {
    try {
      if (each.module_options) {
        write_expected(folder, each, refusal_of(folder, each, opsets));
        continue;
      }
      write_expected(folder, each, "");
      write_models(folder, each, opsets, /*may_refuse=*/false);
    } catch (const std::exception& error) {
      std::cerr << each.name << ": " << lockstep::first_line(error) << '\n';
      ++failed;
    }
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc < 3 ? "" : argv[2];
  if (what != "types" && !kCases.contains(what)) {
    std::cerr << "usage: export_models FOLDER operators|modules|nets|large|types [OPSET...]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::vector<int> opsets;
  for (int i = 3; i < argc; ++i) opsets.push_back(std::stoi(argv[i]));
  if (opsets.empty()) opsets = {17, 18, 19, 20};
  const int failed = what == "types" ? write_types(folder, opsets)
                                     : write_cases(folder, kCases.at(what)(), opsets);
  return failed == 0 ? 0 : 1;
}
