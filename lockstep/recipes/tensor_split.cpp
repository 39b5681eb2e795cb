#include <lockstep/recipes/tensor_split.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/tensor_files.h>
#include <lockstep/report/text.h>

namespace lockstep::recipes {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTensorOwner = "program";
constexpr std::string_view kTensorEnding = ".safetensors";

using Rows = std::shared_ptr<const BatchDataset<Tensors>>;

// A part of the data, and a text that differs if its tensors have other names or shapes.
struct TensorPart {
  Rows rows;
  std::string content;
};

// The names of the two parts of a folder that has its own split.
struct TensorPartNames {
  std::string train;
  std::string validation;
};

void tell_user(const RecipeDataOptions& options, const std::string& text) {
  if (options.message) options.message(text);
}

std::string sample_count(std::int64_t samples) { return report::count_of(samples, "sample"); }

std::optional<TensorPartNames> own_tensor_parts(const RecipeDataOptions& options,
                                                const fs::path& path) {
  for (const std::string_view ending : {std::string_view(), kTensorEnding}) {
    const std::vector<std::string> found = validation_parts(path, ending);
    if (found.empty()) continue;
    for (std::size_t i = 1; i < found.size(); ++i) {
      tell_user(options, lockstep::str(path.string(), ": the samples in ", found[0],
                                       " are validated on, those in ", found[i], " are not used"));
    }
    return TensorPartNames{lockstep::str("train", ending), found[0]};
  }
  return std::nullopt;
}

// ConfigError unless tensors can be at `path`.
void require_tensors(const fs::path& path) {
  std::error_code error;  // with one, a later message is better
  if (!fs::exists(path, error) && !error) {
    throw ConfigError(lockstep::str(kTensorOwner, ": ", path.string(),
                                    " does not exist; give a .safetensors file, or a folder with a "
                                    "file NAME.npy for each input"));
  }
  if (data::pack_kind(path)) {
    throw ConfigError(lockstep::str(kTensorOwner, ": ", path.string(),
                                    " holds images; say which inputs get them and their labels, "
                                    "such as --inputs pixel_values=images,labels=labels"));
  }
}

TensorPart open_part(const fs::path& path, const std::string& program,
                     const std::vector<program::TensorSignature>& inputs) {
  const MappedTensors tensors = map_tensors(path);
  TensorPart part{.rows = tensor_rows(tensors, inputs, program, path.string()), .content = {}};
  for (const auto& [name, tensor] : tensors) {
    part.content += lockstep::str(name, ' ', tensor.view.dtype, ' ', join(tensor.view.shape), '\n');
  }
  return part;
}

std::string fingerprint_of(const std::string& text) {
  formats::Checksum sum;
  sum.add(std::as_bytes(std::span(text)));
  return lockstep::str(sum.value());
}

std::string name_of_path(const fs::path& path) {
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
}

RecipeData load_own_parts(const RecipeDataOptions& options, const TensorPartNames& names,
                          const fs::path& path, const std::string& program,
                          const std::vector<program::TensorSignature>& inputs) {
  if (options.validation_fraction) {
    throw ConfigError(lockstep::str(kTensorOwner, ": ", path.string(), " has ", names.train,
                                    " and ", names.validation,
                                    ", which are the split; remove the validation fraction"));
  }
  if (options.whole) {
    throw ConfigError(lockstep::str(
        kTensorOwner, ": ", path.string(), " has ", names.train, " and ", names.validation,
        ", which are not taken together; give the path of one of them"));
  }
  const TensorPart train = open_part(path / names.train, program, inputs);
  const TensorPart validation = open_part(path / names.validation, program, inputs);
  return {.description =
              lockstep::str(name_of_path(path), " (", names.train, ", ", names.validation, ')'),
          .fingerprint = fingerprint_of(train.content + validation.content),
          .tensors = TensorParts{.train = train.rows, .validation = validation.rows}};
}

// LibTorch draws the order, on one thread: an OpenMP region in the launcher would hang the ranks
// that it forks.
TensorParts split_rows(const Rows& rows, std::int64_t validated, std::uint64_t seed) {
  const SingleThreadScope alone;
  const std::vector<std::int64_t> order = data::random_permutation(rows->size(), seed, 0);
  const auto middle = order.end() - validated;
  return {.train = subset_of_rows(rows, {order.begin(), middle}),
          .validation = subset_of_rows(rows, {middle, order.end()})};
}

}  // namespace

RecipeData load_tensor_split(const RecipeDataOptions& options, const std::string& program,
                             const std::vector<program::TensorSignature>& inputs) {
  if (!options.directory) {
    throw ConfigError(lockstep::str(
        kTensorOwner,
        ": give --data FILE.safetensors, whose tensors have the names of the program's inputs, or "
        "--data DIR with a file NAME.npy for each input"));
  }
  const fs::path path = *options.directory;
  require_tensors(path);
  if (const auto names = own_tensor_parts(options, path)) {
    return load_own_parts(options, *names, path, program, inputs);
  }
  const TensorPart all = open_part(path, program, inputs);
  if (options.whole) {
    return {.description = name_of_path(path),
            .tensors = TensorParts{.train = all.rows, .validation = all.rows}};
  }
  const std::int64_t samples = all.rows->size();
  const std::int64_t validated = validation_count(samples, options, kTensorOwner, "sample");
  tell_user(options,
            lockstep::str("split by seed ", options.seed, ": ", sample_count(samples - validated),
                          " to train on, ", report::count_text(static_cast<double>(validated)),
                          " to validate on"));
  return {.description = name_of_path(path),
          .fingerprint = fingerprint_of(lockstep::str(all.content, options.seed, ' ', validated)),
          .is_split_at_random = true,
          .tensors = split_rows(all.rows, validated, options.seed)};
}

bool has_own_tensor_parts(const fs::path& path) {
  return !validation_parts(path, "").empty() || !validation_parts(path, kTensorEnding).empty();
}

}  // namespace lockstep::recipes
