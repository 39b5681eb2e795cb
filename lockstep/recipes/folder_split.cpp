#include <lockstep/recipes/folder_split.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/core/directory.h>
#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>
#include <lockstep/core/options.h>
#include <lockstep/data/datasets/cached_images.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/random_split.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/report/text.h>

namespace lockstep::recipes {
namespace {

namespace fs = std::filesystem;

// By default a cache takes at most 1 / kCacheShare of the host's free memory.
constexpr std::int64_t kCacheShare = 4;

// Names of the validation folder beside train, in order of preference.
constexpr std::array<const char*, 4> kValidationFolders = {"val", "valid", "validation", "test"};

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

// DataError for the first class that `part` has and `other` lacks.
void require_classes(const fs::path& directory, const char* part, const ImageDataset& images,
                     const char* other, const ImageDataset& others) {
  for (const std::string& name : images.class_names()) {
    if (std::ranges::find(others.class_names(), name) != others.class_names().end()) continue;
    throw DataError(lockstep::str(directory.string(), ": ", part, " has the class '", name,
                                  "', which ", other, " lacks; give both a folder for each class"));
  }
}

FolderParts load_parts(const fs::path& directory, const char* validation_name,
                       const ImageFolderOptions& options) {
  ImageDataset train = load_image_folder(directory / "train", options);
  ImageDataset validation = load_image_folder(directory / validation_name, options);
  require_classes(directory, "train", train, validation_name, validation);
  require_classes(directory, validation_name, validation, "train", train);
  return {std::move(train), std::move(validation)};
}

void tell(const RecipeDataOptions& options, const std::string& text) {
  if (options.message) options.message(text);
}

// The name of the folder of validation images; null if the folder has no split.
const char* validation_folder(const RecipeDataOptions& options, const fs::path& directory,
                              const std::string& recipe) {
  if (!has_folder(directory, "train")) return nullptr;
  std::vector<const char*> found;
  for (const char* name : kValidationFolders) {
    if (has_folder(directory, name)) found.push_back(name);
  }
  if (found.empty() && !list_directory(directory / "train").folders.empty()) {
    throw ConfigError(
        lockstep::str(recipe, ": ", directory.string(),
                      " has the folder train, which has folders of its own, but none of ",
                      lockstep::join(kValidationFolders), "; add one, or give --data ",
                      (directory / "train").string(), ", which is split at random"));
  }
  if (found.empty()) return nullptr;
  for (std::size_t i = 1; i < found.size(); ++i) {
    tell(options, lockstep::str(directory.string(), ": the images in ", found[0],
                                " are validated on, those in ", found[i], " are not used"));
  }
  return found[0];
}

std::string image_count(std::int64_t images) {
  return report::count_text(static_cast<double>(images)) + ' ' + noun_for(images, "image");
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
  // LibTorch draws the order, on one thread: an OpenMP region in the launcher would hang the ranks
  // that it forks.
  const SingleThreadScope alone;
  std::vector<ImageDataset> parts =
      random_split(all, {all.size() - validated, validated}, options.seed);
  tell(options, lockstep::str("split by seed ", options.seed, ": ", image_count(parts[0].size()),
                              " to train on, ", report::count_text(static_cast<double>(validated)),
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
  const std::string limit = report::bytes_text(static_cast<double>(max_bytes));
  if (!wanted.cached_size) {
    return tell(options, "decoded images stay in memory, in up to " + limit);
  }
  const auto [height, width] = *wanted.cached_size;
  const std::int64_t each = cached_bytes(3, height, width);
  const std::int64_t kept = std::min(images, max_bytes / each);
  tell(options,
       lockstep::str(kept == images ? "all" : report::count_text(static_cast<double>(kept)),
                     kept == images ? " " : " of ", image_count(images),
                     " stay in memory once they are decoded, ",
                     report::bytes_text(static_cast<double>(kept * each)), " at ", width, "x",
                     height, " pixels",
                     kept == images ? "" : "; the others are decoded in every epoch"));
}

// The maximum size of the cache in bytes; 0: no cache.
std::int64_t cache_limit(const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  if (options.cache_bytes) return *options.cache_bytes;
  const HostMemory memory = host_memory();
  if (memory.total == 0) return wanted.default_cache_bytes;
  return std::min(wanted.default_cache_bytes,
                  memory.left() / kCacheShare / std::max(options.local_processes, 1));
}

// Reports if the caches of all processes on this host would need more memory than there is.
void tell_of_memory(const RecipeDataOptions& options, const FolderSplitOptions& wanted,
                    std::int64_t images, std::int64_t limit) {
  const HostMemory memory = host_memory();
  if (memory.total == 0) return;
  std::int64_t most = limit;
  if (wanted.cached_size) {
    const auto [height, width] = *wanted.cached_size;
    most = std::min(most, images * cached_bytes(3, height, width));
  }
  const std::int64_t processes = std::max(options.local_processes, 1);
  if (most <= memory.left() / processes) return;
  tell(options,
       lockstep::str("the cache may grow to ", report::bytes_text(static_cast<double>(most)),
                     processes > 1 ? " in each of the host's processes" : "", ", but the host has ",
                     report::bytes_text(static_cast<double>(memory.left())),
                     " of memory left; give a smaller --cache"));
}

// Identifies the names of the images in `parts`, and `split`, which describes their split.
std::string fingerprint_text(const std::vector<std::uint64_t>& parts, const std::string& split) {
  formats::Checksum sum;
  sum.add(std::as_bytes(std::span(parts)));
  sum.add(std::as_bytes(std::span(split)));
  return lockstep::str(sum.value());
}

// `images` with a cache if one is wanted.
ImageDataset cached(const ImageDataset& images, const RecipeDataOptions& options,
                    const FolderSplitOptions& wanted) {
  const std::int64_t limit = cache_limit(options, wanted);
  if (limit == 0) return images;
  tell_of_cache(options, wanted, images.size(), limit);
  tell_of_memory(options, wanted, images.size(), limit);
  return cache_images(images, {.max_bytes = limit, .size = wanted.cached_size});
}

// Loads the folder's own split, whose parts share a cache.
RecipeData load_own_split(const fs::path& directory, const char* validation_name,
                          const RecipeDataOptions& options, const FolderSplitOptions& wanted) {
  const auto [train, validation] = load_parts(directory, validation_name, folder_options(options));
  const ImageDataset all = cached(concatenate({train, validation}), options, wanted);
  const ImageDataset rest = range_of(all, train.size(), validation.size());
  return {.description = name_of_folder(directory),
          .train = range_of(all, 0, train.size()),
          .load_test = [rest] { return rest; },
          .fingerprint =
              fingerprint_text({train.fingerprint(), validation.fingerprint()}, validation_name)};
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
  const char* const own_split = validation_folder(options, directory, wanted.recipe);
  if (own_split != nullptr && options.validation_fraction) {
    throw ConfigError(lockstep::str(wanted.recipe, ": ", directory.string(),
                                    " has the folders train and ", own_split,
                                    ", which are the split; leave the validation fraction out"));
  }
  if (own_split != nullptr) return load_own_split(directory, own_split, options, wanted);
  const ImageDataset all = load_image_folder(directory, folder_options(options));
  const FolderParts parts = split_at_random(cached(all, options, wanted), options, wanted.recipe);
  const std::string split = lockstep::str(options.seed, ' ', parts.validation.size());
  return {.description = name_of_folder(directory),
          .train = parts.train,
          .load_test = [validation = parts.validation] { return validation; },
          .fingerprint = fingerprint_text({all.fingerprint()}, split),
          .is_split_at_random = true};
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

}  // namespace lockstep::recipes
