#include <lockstep/recipes/folder_split.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>
#include <lockstep/core/options.h>
#include <lockstep/data/cached_images.h>
#include <lockstep/data/image_folder.h>
#include <lockstep/data/random_split.h>
#include <lockstep/parallel/thread_share.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The part of the host's free memory that a cache takes unless the user gives it more.
constexpr std::int64_t kCacheShare = 4;

struct FolderParts {
  ImageDataset train;
  ImageDataset validation;
};

bool has_folder(const fs::path& directory, const char* name) {
  std::error_code ignored;
  return fs::is_directory(directory / name, ignored);
}

// "photos" for "somewhere/photos" and "somewhere/photos/".
std::string name_of_folder(const fs::path& directory) {
  const fs::path shown = directory.filename().empty() ? directory.parent_path() : directory;
  return shown.filename().string();
}

ImageFolderOptions folder_options(const RecipeDataOptions& options) {
  return {.decoding = options.decoding, .max_image_pixels = options.max_image_pixels};
}

FolderParts load_parts(const fs::path& directory, const char* validation_name,
                       const ImageFolderOptions& options) {
  ImageDataset train = load_image_folder(directory / "train", options);
  ImageDataset validation = load_image_folder(directory / validation_name, options);
  if (train.class_names() != validation.class_names()) {
    throw DataError(lockstep::str(directory.string(), ": train has ", train.num_classes(),
                                  " classes and ", validation_name, ' ', validation.num_classes(),
                                  ", which must have the same names"));
  }
  return {std::move(train), std::move(validation)};
}

// The name of the folder that validation images are in; null where the folder has no split.
const char* validation_folder(const fs::path& directory) {
  if (!has_folder(directory, "train")) return nullptr;
  for (const char* name : {"val", "test"}) {
    if (has_folder(directory, name)) return name;
  }
  return nullptr;
}

void tell(const RecipeDataOptions& options, const std::string& text) {
  if (options.message) options.message(text);
}

std::string image_count(std::int64_t images) {
  return count_text(static_cast<double>(images)) + ' ' + noun_for(images, "image");
}

FolderParts split_at_random(const ImageDataset& all, const RecipeDataOptions& options,
                            const std::string& recipe) {
  const double fraction = options.validation_fraction.value_or(kValidationFraction);
  const auto validated =
      static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(all.size())));
  if (validated < 1 || validated >= all.size()) {
    throw ConfigError(lockstep::str(recipe, ": a validation fraction of ", fraction, " of ",
                                    image_count(all.size()), " is ", image_count(validated),
                                    "; each part needs at least 1 image"));
  }
  // LibTorch draws the order. An OpenMP region in the launcher would hang the ranks that it forks.
  const SingleThreadScope alone;
  std::vector<ImageDataset> parts =
      random_split(all, {all.size() - validated, validated}, options.seed);
  tell(options, lockstep::str("split by seed ", options.seed, ": ", image_count(parts[0].size()),
                              " to train on, ", count_text(static_cast<double>(validated)),
                              " to validate on"));
  return {std::move(parts[0]), std::move(parts[1])};
}

// The images `first` to `first` + `count` - 1.
ImageDataset range_of(const ImageDataset& dataset, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return subset(dataset, std::move(indices));
}

void tell_of_cache(const RecipeDataOptions& options, const FolderSplitOptions& wanted,
                   std::int64_t images, std::int64_t max_bytes) {
  const std::string limit = bytes_text(static_cast<double>(max_bytes));
  if (!wanted.cached_size) {
    return tell(options, "decoded images stay in memory, in up to " + limit);
  }
  const auto [height, width] = *wanted.cached_size;
  const std::int64_t each = cached_bytes(3, height, width);
  const std::int64_t kept = std::min(images, max_bytes / each);
  tell(options,
       lockstep::str(kept == images ? "all" : count_text(static_cast<double>(kept)),
                     kept == images ? " " : " of ", image_count(images),
                     " stay in memory once they are decoded, ",
                     bytes_text(static_cast<double>(kept * each)), " at ", width, "x", height,
                     " pixels", kept == images ? "" : "; the others are decoded in every epoch"));
}

// The bytes that the cache may take; 0: there is to be none.
std::int64_t cache_limit(const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  if (options.cache_bytes) return *options.cache_bytes;
  const HostMemory memory = host_memory();
  if (memory.total == 0) return wanted.default_cache_bytes;
  return std::min(wanted.default_cache_bytes, memory.left() / kCacheShare);
}

}  // namespace

RecipeData load_folder_split(const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  if (!options.directory) {
    throw ConfigError(lockstep::str(wanted.recipe,
                                    ": give --data DIR, a folder of images with a folder for each "
                                    "class, or with train and val, which have one for each class"));
  }
  const fs::path directory = *options.directory;
  if (options.validation_fraction) {
    OptionCheck(wanted.recipe)
        .in_range("the validation fraction", *options.validation_fraction, 0, 1);
  }
  const char* const own_split = validation_folder(directory);
  if (own_split != nullptr && options.validation_fraction) {
    throw ConfigError(lockstep::str(wanted.recipe, ": ", directory.string(),
                                    " has the folders train and ", own_split,
                                    ", which are the split; leave the validation fraction out"));
  }
  const ImageFolderOptions folder = folder_options(options);
  std::optional<FolderParts> own;
  if (own_split != nullptr) own = load_parts(directory, own_split, folder);
  ImageDataset all =
      own ? concatenate({own->train, own->validation}) : load_image_folder(directory, folder);
  if (const std::int64_t limit = cache_limit(options, wanted); limit > 0) {
    tell_of_cache(options, wanted, all.size(), limit);
    all = cache_images(all, {.max_bytes = limit, .size = wanted.cached_size});
  }
  const FolderParts parts =
      own ? FolderParts{range_of(all, 0, own->train.size()),
                        range_of(all, own->train.size(), own->validation.size())}
          : split_at_random(all, options, wanted.recipe);
  return {.description = name_of_folder(directory),
          .train = parts.train,
          .load_test = [validation = parts.validation] { return validation; }};
}

RecipeData load_train_and_val(const RecipeDataOptions& options, const std::string& recipe) {
  const fs::path directory = options.directory.value();
  for (const char* part : {"train", "val"}) {
    if (has_folder(directory, part)) continue;
    throw ConfigError(lockstep::str(recipe, ": --data ", directory.string(), " has no folder '",
                                    part,
                                    "'; expected train and val, each with a folder of images for "
                                    "each class"));
  }
  const FolderParts parts = load_parts(directory, "val", folder_options(options));
  return {.description = name_of_folder(directory),
          .train = parts.train,
          .load_test = [validation = parts.validation] { return validation; }};
}

}  // namespace lockstep
