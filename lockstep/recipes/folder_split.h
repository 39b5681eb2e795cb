// A folder of images as a recipe trains on it: split into images to train and to validate on, and
// kept in memory once they are decoded.
#pragma once

#include <optional>
#include <string>

#include <lockstep/data/augment/augment.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep {

/// What a recipe wants of the folder.
struct FolderSplitOptions {
  std::string recipe{};  ///< begins messages
  /// Images are cached as a Resize to this size leaves them (CacheImagesOptions::size).
  std::optional<ImageSize> cached_size{};
  /// Memory for the cache where RecipeDataOptions::cache_bytes says nothing; 0: no cache.
  std::int64_t default_cache_bytes = 0;
};

/// The images of RecipeDataOptions::directory, which has a folder for each class. Where it has the
/// folder train and one of val, valid, validation and test instead, the first of these is the other
/// part of the split. Otherwise the images are split at random by RecipeDataOptions::seed, alike on
/// all ranks, with random_split(). Both parts share one cache. Messages say how many images each
/// part has, which folder is left out, and when the caches need more memory than the host has left.
///
/// ConfigError without a directory, for a fraction that leaves one part without an image, for a
/// fraction where the folder has a split of its own, and for a folder train that has folders but no
/// other part beside it. DataError as load_image_folder() throws it, and when train and val have
/// other classes.
RecipeData load_folder_split(const RecipeDataOptions& options, const FolderSplitOptions& wanted);

/// The images of `directory`/train and `directory`/val, which must have the same classes.
/// ConfigError, which begins with `recipe`, when there are no such folders.
RecipeData load_train_and_val(const RecipeDataOptions& options, const std::string& recipe);

}  // namespace lockstep
