#include <lockstep/program/graph/pt2_file.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/archive_records.h>
#include <lockstep/program/graph/read_graph.h>

namespace lockstep::program {
namespace {

using formats::printable;
using torch_file::ArchiveRecords;

constexpr ScalarTypeInfo kScalarTypes[] = {
    {1, "uint8", 1},
    {2, "int8", 1},
    {3, "int16", 2},
    {4, "int32", 4},
    {5, "int64", 8},
    {6, "float16", 2},
    {7, "float32", 4},
    {8, "float64", 8},
    {9, "complex32", 4},
    {10, "complex64", 8},
    {11, "complex128", 16},
    {12, "bool", 1},
    {13, "bfloat16", 2},
    {28, "uint16", 2},
    {29, "float8_e4m3fn", 1},
    {30, "float8_e5m2", 1},
    {31, "float8_e4m3fnuz", 1},
    {32, "float8_e5m2fnuz", 1},
    {33, "float8_e8m0fnu", 1},
    {34, "uint32", 4},
    {35, "uint64", 8},
};

// The types in files of torch.save by their names in safetensors.
constexpr std::pair<std::string_view, std::int64_t> kSavedTypes[] = {
    {"U8", 1},   {"I8", 2},       {"I16", 3},      {"I32", 4},   {"I64", 5},
    {"F16", 6},  {"F32", 7},      {"F64", 8},      {"BOOL", 12}, {"BF16", 13},
    {"U16", 28}, {"F8_E4M3", 29}, {"F8_E5M2", 30}, {"U32", 34},  {"U64", 35},
};

constexpr std::int64_t kStrided = 7;  // Layout.Strided of the schema

class Pt2Reader {
 public:
  Pt2Reader(std::span<const std::byte> bytes, std::string_view name)
      : name_(name), records_(zip_file(bytes, name), name, "torch.export.save") {}

  Pt2File read() {
    Pt2File file;
    records_.require_little_endian();
    const bool is_old = records_.contains(kOldGraph);
    const std::string model = is_old ? "" : only_model();
    file.has_checksums = records_.verify_checksums();
    file.program = graph();
    if (is_old) {
      file.state = saved_tensors("serialized_state_dict.pt");
      file.constants = saved_tensors("serialized_constants.pt");
    } else {
      file.state = tensors("data/weights/", model, "_weights_config.json");
      file.constants = tensors("data/constants/", model, "_constants_config.json");
    }
    check_tensors(file);
    add_unused(file);
    return file;
  }

  ExportedGraph graph() const {
    const std::string record =
        records_.contains(kOldGraph) ? kOldGraph : str(kModels, only_model(), ".json");
    return read_graph(records_.text(record), str(name_, ": ", record));
  }

 private:
  static constexpr const char* kOldGraph = "serialized_exported_program.json";
  static constexpr std::string_view kModels = "models/";

  static std::span<const std::byte> zip_file(std::span<const std::byte> bytes,
                                             std::string_view name) {
    if (torch_file::is_zip(bytes)) return bytes;
    throw CheckpointError(str(name, ": not a zip file, expected one of torch.export.save (.pt2)"));
  }

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }

  // An archive may hold several models; torch.export.save writes one, which is called "model".
  std::string only_model() const {
    std::vector<std::string> models;
    for (const std::string& record : records_.names()) {
      if (record.starts_with(kModels) && record.ends_with(".json")) {
        models.push_back(record.substr(kModels.size(), record.size() - kModels.size() - 5));
      }
    }
    if (models.size() == 1) return models.front();
    if (!models.empty()) fail("the file has ", models.size(), " models, expected one");
    if (records_.contains("data.pkl")) {
      fail(
          "a file of torch.save or torch.jit.save; export the model with torch.export.export() and "
          "save it with torch.export.save()");
    }
    fail("the zip file is not one of torch.export.save: it has no models/model.json");
  }

  std::map<std::string, StoredTensor> tensors(const std::string& folder, const std::string& model,
                                              const char* config) const {
    // PyTorch 2.8 wrote a file of torch.save.
    if (const std::string saved = str(folder, model, ".pt"); records_.contains(saved)) {
      return saved_tensors(saved);
    }
    const std::string record = str(folder, model, config);
    std::map<std::string, StoredTensor> result;
    std::map<std::string, StoredTensor> pickled;  // by path: each file is read once
    for (const auto& [key, payload] :
         read_payloads(records_.text(record), str(name_, ": ", record))) {
      const std::string path = str(folder, payload.path);
      if (payload.is_pickled) {
        auto known = pickled.find(path);
        if (known == pickled.end()) known = pickled.emplace(path, pickled_tensor(key, path)).first;
        result.emplace(key, known->second);
        continue;
      }
      StoredTensor tensor{.dtype = payload.tensor.dtype,
                          .sizes = numbers(key, payload.tensor.sizes),
                          .strides = numbers(key, payload.tensor.strides),
                          .offset = number(key, payload.tensor.storage_offset),
                          .requires_grad = payload.tensor.requires_grad,
                          .is_parameter = payload.is_parameter,
                          .storage = records_.at(path)};
      if (payload.tensor.layout.code != kStrided) {
        fail("tensor '", printable(key), "' is not dense; only dense tensors are supported");
      }
      result.emplace(key, std::move(tensor));
    }
    return result;
  }

  std::map<std::string, StoredTensor> saved_tensors(const std::string& record) const {
    std::map<std::string, StoredTensor> result;
    const auto bytes = records_.at(record);
    const TorchFile file = parse_torch_file(bytes, str(name_, ": ", record));
    for (const auto& [key, tensor] : file.tensors) result.emplace(key, stored(key, tensor));
    return result;
  }

  StoredTensor pickled_tensor(const std::string& key, const std::string& record) const {
    const TorchFile file = parse_torch_file(records_.at(record), str(name_, ": ", record));
    if (file.tensors.size() != 1) fail("tensor '", printable(key), "' is not a plain tensor");
    return stored(key, file.tensors.front().second);
  }

  StoredTensor stored(const std::string& key, const TorchTensor& tensor) const {
    const auto type = std::find_if(std::begin(kSavedTypes), std::end(kSavedTypes),
                                   [&](const auto& known) { return known.first == tensor.dtype; });
    if (type == std::end(kSavedTypes)) {
      fail("tensor '", printable(key), "' has the unsupported dtype ", printable(tensor.dtype));
    }
    return {.dtype = {type->second},
            .sizes = tensor.shape,
            .strides = tensor.strides,
            .offset = tensor.offset,
            .requires_grad = true,
            .storage = tensor.storage};
  }

  std::int64_t number(const std::string& key, const Size& size) const {
    if (size.expression.empty()) return size.value;
    fail("tensor '", printable(key), "' has the size ", printable(size.expression),
         ", expected a number");
  }
  std::vector<std::int64_t> numbers(const std::string& key, const std::vector<Size>& sizes) const {
    std::vector<std::int64_t> result;
    for (const Size& size : sizes) result.push_back(number(key, size));
    return result;
  }

  void check_geometry(const std::string& key, const StoredTensor& tensor) const {
    const ScalarTypeInfo* type = scalar_type_info(tensor.dtype);
    if (type == nullptr) {
      fail("tensor '", printable(key), "' has the unknown dtype ", tensor.dtype.code);
    }
    std::int64_t last = tensor.offset;  // the largest index into the storage
    std::int64_t elements = 1;
    bool fits = tensor.offset >= 0;
    for (std::size_t i = 0; fits && i < tensor.sizes.size(); ++i) {
      std::int64_t step = 0;
      fits = tensor.sizes[i] >= 0 && tensor.strides[i] >= 0 &&
             !__builtin_mul_overflow(elements, tensor.sizes[i], &elements) &&
             !__builtin_mul_overflow(std::max<std::int64_t>(tensor.sizes[i] - 1, 0),
                                     tensor.strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    const auto available = static_cast<std::int64_t>(tensor.storage.size() / type->bytes);
    if (fits && elements == 0) return;
    if (!fits || last >= available) {
      fail("tensor '", printable(key), "' reaches beyond its storage of ", available, " elements");
    }
    // The views are copied as they are, so that no tensor takes more memory than its storage.
  }

  void check_tensors(const Pt2File& file) const {
    for (const auto* tensors : {&file.state, &file.constants}) {
      for (const auto& [key, tensor] : *tensors) check_geometry(key, tensor);
    }
    using Kind = InputSpec::Kind;
    for (const InputSpec& input : file.program.inputs) {
      if (is_user(input)) continue;
      const bool is_state =
          input.kind == Kind::kParameter || (input.kind == Kind::kBuffer && input.persistent);
      const auto& tensors = is_state ? file.state : file.constants;
      if (!tensors.contains(input.target)) {
        fail("the tensor '", printable(input.target), "' of the graph is missing in the file");
      }
    }
  }

  // Adds the state that the graph does not mention to its inputs.
  static void add_unused(Pt2File& file) {
    using Kind = InputSpec::Kind;
    std::set<std::string, std::less<>> used;
    for (const InputSpec& input : file.program.inputs) {
      if (input.kind == Kind::kParameter || input.kind == Kind::kBuffer) used.insert(input.target);
    }
    for (const auto& [key, tensor] : file.state) {
      if (used.contains(key)) continue;
      const Argument value{TensorName{str("unused.", key)}};  // no value of Python has a dot
      TensorDescription description{.dtype = tensor.dtype,
                                    .device = {.type = "cpu"},
                                    .layout = {kStrided},
                                    .requires_grad = tensor.is_parameter && tensor.requires_grad};
      for (const std::int64_t size : tensor.sizes) description.sizes.push_back({size});
      for (const std::int64_t stride : tensor.strides) description.strides.push_back({stride});
      file.program.graph.inputs.push_back(value);
      file.program.graph.tensors.insert_or_assign(std::get<TensorName>(value.value).name,
                                                  std::move(description));
      file.program.inputs.push_back({.kind = tensor.is_parameter ? Kind::kParameter : Kind::kBuffer,
                                     .argument = value,
                                     .target = key});
    }
  }

  std::string_view name_;
  ArchiveRecords records_;
};

}  // namespace

const ScalarTypeInfo* scalar_type_info(ScalarTypeCode code) {
  const auto found =
      std::find_if(std::begin(kScalarTypes), std::end(kScalarTypes),
                   [&](const ScalarTypeInfo& type) { return type.code == code.code; });
  return found == std::end(kScalarTypes) ? nullptr : found;
}

Pt2File parse_pt2_file(std::span<const std::byte> bytes, std::string_view name) {
  return Pt2Reader(bytes, name).read();
}

ExportedGraph parse_pt2_graph(std::span<const std::byte> bytes, std::string_view name) {
  return Pt2Reader(bytes, name).graph();
}

}  // namespace lockstep::program
