// A folder of images, or packs, prepared for a recipe: split into training and validation images,
// and cached in memory once decoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::recipes {

/// A recipe's requirements for the images.
struct FolderSplitOptions {
  std::string recipe{};  ///< the prefix of messages
  /// Channels and size of the images; with a height and width of 0 they may have any size. For
  /// three channels, grey images are shown as RGB.
  ImageShape input{3, 0, 0};
  std::int64_t num_classes = 0;  ///< 0: any number
  /// Images are cached as a Resize to this size makes them (CacheImagesOptions::size).
  std::optional<ImageSize> cached_size{};
  /// Memory for the cache if RecipeDataOptions::cache_bytes is absent; 0: no cache.
  std::int64_t default_cache_bytes = 0;
};

/// Loads the images of RecipeDataOptions::directory, which is a pack, or a folder with a folder for
/// each class. If it instead has a folder train and at least one of val, valid, validation and
/// test, then train holds the training images, and the first of the others that exists holds the
/// validation images. Without such folders, packs of these names (train.pack, val.pack, ...) do.
/// Otherwise the images are split at random by RecipeDataOptions::seed, identically on all ranks,
/// and in proportion to the classes: each class has its share of the validation images, and at
/// least one image to train on. If there are fewer training images than classes, random_split()
/// ignores the classes. Both parts share one cache. Messages report how many images each part has,
/// whether the split is by class, which classes have no image to validate on, which part is
/// ignored, which part has fewer than ten images, and when the caches need more memory than the
/// host has left. A pack of pixels, which need no decoding, has no cache by default.
///
/// Throws ConfigError without a directory, for a fraction that leaves one part without images, for
/// a fraction if the folder has its own split, and for a folder train that has folders of its own
/// (or a train.pack beside which there is no folder) but none of the others beside it. Throws the
/// errors of load_image_folder() and load_packed_images(), and DataError if train and val have
/// different classes, or the images of a pack are not as `wanted`.
RecipeData load_folder_split(const RecipeDataOptions& options, const FolderSplitOptions& wanted);

/// The names of the parts of a folder that has a training part and at least one validation part,
/// without the training part and in order of preference: "val", "valid", "validation" and "test",
/// each with `ending`. Parts are folders if `ending` is empty, and otherwise files. Empty if the
/// folder is not divided in this way.
std::vector<std::string> validation_parts(const std::filesystem::path& directory,
                                          std::string_view ending);

/// How many of `samples` are for validation, by RecipeDataOptions::validation_fraction. Throws
/// ConfigError, which begins with `recipe` and calls a sample `noun`, if that leaves a part without
/// samples.
std::int64_t validation_count(std::int64_t samples, const RecipeDataOptions& options,
                              const std::string& recipe, const std::string& noun);

/// Whether load_folder_split() would read packs at `path`: a file is a pack.
bool holds_packs(const std::filesystem::path& path);

/// Whether load_folder_split() would read packs at `path` whose training images are decoded pixels.
/// Throws a DataError if that pack is damaged.
bool holds_packed_pixels(const std::filesystem::path& path);

/// Whether `path` is a folder whose images are in parts of their own, rather than split at random.
bool has_own_parts(const std::filesystem::path& path);

/// Loads the images of `directory`/train and `directory`/val, which must have the same classes.
/// Messages report which part has fewer than ten images. Throws ConfigError, whose text begins with
/// `recipe`, if there are no such folders.
RecipeData load_train_and_val(const RecipeDataOptions& options, const std::string& recipe);

}  // namespace lockstep::recipes
