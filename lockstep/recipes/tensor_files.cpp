#include <lockstep/recipes/tensor_files.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <torch/types.h>

#include <lockstep/core/directory.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/npy.h>
#include <lockstep/formats/printable.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/train/checkpoints/tensor_types.h>

namespace lockstep::recipes {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArrayEnding = ".npy";

struct ElementType {
  std::string_view dtype;   // in safetensors
  std::string_view python;  // in a program's signature
  int integer_bits = 0;     // 0: not an integer
  bool is_signed = false;
};
constexpr std::array<ElementType, 15> kElementTypes = {{
    {"F32", "float32"},
    {"F64", "float64"},
    {"F16", "float16"},
    {"BF16", "bfloat16"},
    {"BOOL", "bool"},
    {"C64", "complex64"},
    {"F8_E5M2", "float8_e5m2"},
    {"F8_E4M3", "float8_e4m3fn"},
    {"I64", "int64", 64, true},
    {"I32", "int32", 32, true},
    {"I16", "int16", 16, true},
    {"I8", "int8", 8, true},
    {"U8", "uint8", 8, false},
    {"U16", "uint16", 16, false},
    {"U32", "uint32", 32, false},
}};

const ElementType* type_with(std::string_view name, std::string_view ElementType::* member) {
  const auto found = std::ranges::find(kElementTypes, name, member);
  return found == kElementTypes.end() ? nullptr : &*found;
}

// Whether `to` holds all numbers of `from`.
bool is_widening(const ElementType& from, const ElementType& to) {
  if (from.integer_bits == 0 || to.integer_bits <= from.integer_bits) return false;
  return to.is_signed || !from.is_signed;
}

program::TensorSignature signature_of_view(const TensorView& view) {
  const ElementType* const type = type_with(view.dtype, &ElementType::dtype);
  program::TensorSignature signature{.dtype =
                                         type == nullptr ? view.dtype : std::string(type->python)};
  signature.sizes.assign(view.shape.begin(), view.shape.end());
  return signature;
}

// Whether a batch of rows of `view` has the input's shape. The first dimension counts samples.
bool has_shape_of(const TensorView& view, const program::TensorSignature& input) {
  if (view.shape.size() != input.sizes.size()) return false;
  for (std::size_t i = 1; i < view.shape.size(); ++i) {
    if (input.sizes[i] && *input.sizes[i] != view.shape[i]) return false;
  }
  return true;
}

// A tensor that is read row by row.
struct RowColumn {
  MappedTensor tensor;
  torch::ScalarType stored;
  torch::ScalarType wanted;
  std::size_t row_bytes = 0;
};

class TensorRows final : public BatchDataset<Tensors> {
 public:
  TensorRows(std::vector<RowColumn> columns, std::int64_t size)
      : columns_(std::move(columns)), size_(size) {}

  std::int64_t size() const override { return size_; }
  void get(const BatchRequest& request, Tensors& batch) const override {
    batch.resize(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const RowColumn& column = columns_[i];
      if (column.stored == column.wanted) {
        fill(column, request, batch[i]);
      } else {
        torch::Tensor rows;
        fill(column, request, rows);
        batch[i] = rows.to(column.wanted);
      }
    }
  }

 private:
  // Gathers the rows in `to`, whose memory is reused if it fits.
  static void fill(const RowColumn& column, const BatchRequest& request, torch::Tensor& to) {
    if (!column.tensor.file->is_whole()) {
      throw DataError(column.tensor.path + " has been cut short while it was read");
    }
    std::vector<std::int64_t> sizes = column.tensor.view.shape;
    sizes.front() = request.size();
    const bool fits = to.defined() && to.is_cpu() && to.scalar_type() == column.stored &&
                      to.is_contiguous() && to.sizes() == sizes;
    if (!fits) to = torch::empty(sizes, column.stored);
    auto* place = static_cast<std::byte*>(to.mutable_data_ptr());
    for (const std::int64_t index : request.indices) {
      const std::size_t offset = static_cast<std::size_t>(index) * column.row_bytes;
      std::memcpy(place, column.tensor.view.bytes.data() + offset, column.row_bytes);
      place += column.row_bytes;
    }
  }

  std::vector<RowColumn> columns_;
  std::int64_t size_;
};

class SubsetOfRows final : public BatchDataset<Tensors> {
 public:
  SubsetOfRows(std::shared_ptr<const BatchDataset<Tensors>> dataset,
               std::vector<std::int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  void get(const BatchRequest& request, Tensors& batch) const override {
    std::vector<std::int64_t> indices;
    for (const std::int64_t index : request.indices) {
      indices.push_back(indices_[static_cast<std::size_t>(index)]);
    }
    BatchRequest inner = request;
    inner.indices = indices;
    dataset_->get(inner, batch);
  }

 private:
  std::shared_ptr<const BatchDataset<Tensors>> dataset_;
  std::vector<std::int64_t> indices_;
};

class RowChecks {
 public:
  RowChecks(const std::vector<program::TensorSignature>& inputs, const std::string& program,
            const std::string& path)
      : inputs_(inputs), program_(program), path_(path) {}

  RowColumn column(const MappedTensors& tensors, const program::TensorSignature& input) const {
    const auto found = tensors.find(input.name);
    if (found == tensors.end()) fail("lacks the tensor '", input.name, "'; ", taken());
    const TensorView& view = found->second.view;
    const ElementType* const stored = type_with(view.dtype, &ElementType::dtype);
    const ElementType* const wanted = type_with(input.dtype, &ElementType::python);
    const bool has_type = stored && wanted && (stored == wanted || is_widening(*stored, *wanted));
    if (!has_type || !has_shape_of(view, input)) {
      fail("the tensor '", input.name, "' is ", program::type_text(signature_of_view(view)),
           ", but ", program_, " takes ", program::type_text(input),
           has_type ? "" : "; save it in that type, because only integers are converted");
    }
    RowColumn column{.tensor = found->second,
                     .stored = train::scalar_type_of(stored->dtype).value(),
                     .wanted = train::scalar_type_of(wanted->dtype).value()};
    column.row_bytes = view.shape.front() == 0
                           ? 0
                           : view.bytes.size() / static_cast<std::size_t>(view.shape.front());
    return column;
  }

  void require_known(const MappedTensors& tensors) const {
    for (const auto& [name, tensor] : tensors) {
      const auto is_named = [&name = name](const auto& input) { return input.name == name; };
      if (std::ranges::any_of(inputs_, is_named)) continue;
      fail("has the tensor '", formats::printable(name), "', which is not an input; ", taken());
    }
  }

  // The number of samples, which all columns must have.
  std::int64_t samples(const std::vector<RowColumn>& columns) const {
    const auto rows = [&](std::size_t i) { return columns[i].tensor.view.shape.front(); };
    for (std::size_t i = 1; i < columns.size(); ++i) {
      if (rows(i) == rows(0)) continue;
      fail("'", inputs_[0].name, "' has ", amount_of(rows(0), "sample"), ", but '", inputs_[i].name,
           "' has ", rows(i), "; the first dimension counts the samples");
    }
    if (rows(0) == 0) fail("has no samples");
    return rows(0);
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw ConfigError(lockstep::str("program: ", path_, ": ", values...));
  }

  std::string taken() const {
    std::vector<std::string> texts;
    for (const auto& input : inputs_)
      texts.push_back(input.name + ": " + program::type_text(input));
    return lockstep::str(program_, " takes ", join(texts));
  }

  const std::vector<program::TensorSignature>& inputs_;
  const std::string& program_;
  const std::string& path_;
};

}  // namespace

MappedTensors map_tensors(const fs::path& path) {
  MappedTensors tensors;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const auto file = std::make_shared<const MappedFile>(path);
    for (auto& [name, view] : parse_safetensors(file->bytes(), path.string()).tensors) {
      tensors.emplace(name, MappedTensor{std::move(view), file, path.string()});
    }
    return tensors;
  }
  for (const std::string& name : list_directory(path).files) {
    if (!name.ends_with(kArrayEnding)) continue;
    const std::string array = (path / name).string();
    const auto file = std::make_shared<const MappedFile>(array);
    tensors.emplace(name.substr(0, name.size() - kArrayEnding.size()),
                    MappedTensor{formats::parse_npy(file->bytes(), array), file, array});
  }
  if (!tensors.empty()) return tensors;
  throw ConfigError(lockstep::str("program: ", path.string(),
                                  ": has no .npy files; give a .safetensors file, a folder with a "
                                  "file NAME.npy for each input, or a folder with these for train "
                                  "and validation; for images, say with --inputs which inputs get "
                                  "them"));
}

std::shared_ptr<const BatchDataset<Tensors>> tensor_rows(
    const MappedTensors& tensors, const std::vector<program::TensorSignature>& inputs,
    const std::string& program, const std::string& path) {
  const RowChecks checks(inputs, program, path);
  checks.require_known(tensors);
  std::vector<RowColumn> columns;
  for (const auto& input : inputs) columns.push_back(checks.column(tensors, input));
  const std::int64_t samples = checks.samples(columns);
  return std::make_shared<const TensorRows>(std::move(columns), samples);
}

std::shared_ptr<const BatchDataset<Tensors>> subset_of_rows(
    std::shared_ptr<const BatchDataset<Tensors>> dataset, std::vector<std::int64_t> indices) {
  return std::make_shared<const SubsetOfRows>(std::move(dataset), std::move(indices));
}

}  // namespace lockstep::recipes
