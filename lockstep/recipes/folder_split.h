// A folder of images prepared for a recipe: split into training and validation images, and cached
// in memory once decoded.
#pragma once

#include <optional>
#include <string>

#include <lockstep/data/augment/augment.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::recipes {

/// A recipe's requirements for the folder.
struct FolderSplitOptions {
  std::string recipe{};  ///< the prefix of messages
  /// Images are cached as a Resize to this size makes them (CacheImagesOptions::size).
  std::optional<ImageSize> cached_size{};
  /// Memory for the cache if RecipeDataOptions::cache_bytes is absent; 0: no cache.
  std::int64_t default_cache_bytes = 0;
};

/// Loads the images of RecipeDataOptions::directory, which has a folder for each class. If it
/// instead has a folder train and at least one of val, valid, validation and test, then train holds
/// the training images, and the first of the others that exists holds the validation images.
/// Otherwise the images are split at random by RecipeDataOptions::seed, identically on all ranks,
/// and in proportion to the classes: each class has its share of the validation images, and at
/// least one image to train on. If there are fewer training images than classes, random_split()
/// ignores the classes. Both parts share one cache. Messages report how many images each part has,
/// whether the split is by class, which classes have no image to validate on, which folder is
/// ignored, which part has fewer than ten images, and when the caches need more memory than the
/// host has left.
///
/// Throws ConfigError without a directory, for a fraction that leaves one part without images, for
/// a fraction if the folder has its own split, and for a folder train that has folders of its own
/// but none of the others beside it. Throws DataError like load_image_folder(), and if train and
/// val have different classes.
RecipeData load_folder_split(const RecipeDataOptions& options, const FolderSplitOptions& wanted);

/// Loads the images of `directory`/train and `directory`/val, which must have the same classes.
/// Messages report which part has fewer than ten images. Throws ConfigError, whose text begins with
/// `recipe`, if there are no such folders.
RecipeData load_train_and_val(const RecipeDataOptions& options, const std::string& recipe);

}  // namespace lockstep::recipes
