// Tensors in files, prepared for a recipe: split into training and validation samples.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/program/graph/signature.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::recipes {

/// Loads the samples of RecipeDataOptions::directory for a program, whose file is `program` and
/// which takes `inputs`. The samples are in a .safetensors file, or in a folder with a file
/// NAME.npy for each input. They are split at random by RecipeDataOptions::seed, identically on all
/// ranks. A folder with train.safetensors and one of val, valid, validation and test, or with
/// folders of these names, has its own split. Messages report how many samples each part has, and
/// which part is ignored.
///
/// Throws ConfigError without a directory, for tensors that are not the program's inputs, for a
/// fraction that leaves a part without samples, and for a fraction or RecipeDataOptions::whole if
/// the folder has its own split. Throws the errors of map_tensors().
RecipeData load_tensor_split(const RecipeDataOptions& options, const std::string& program,
                             const std::vector<program::TensorSignature>& inputs);

/// Whether `path` is a folder whose samples are in parts of their own, rather than split at random.
bool has_own_tensor_parts(const std::filesystem::path& path);

}  // namespace lockstep::recipes
