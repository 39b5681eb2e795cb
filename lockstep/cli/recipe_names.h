// Names of recipes for --help and messages.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::cli {

/// Names of the recipes for which `has(recipe)` is true.
template <class Predicate>
std::vector<std::string> recipes_with(const Predicate& has) {
  std::vector<std::string> names;
  for (const recipes::Recipe& recipe : recipes::all_recipes()) {
    if (has(recipe)) names.push_back(recipe.name);
  }
  return names;
}

inline std::vector<std::string> recipe_names() {
  return recipes_with([](const recipes::Recipe&) { return true; });
}

inline bool has_models(const recipes::Recipe& recipe) { return !recipe.models.empty(); }
inline bool has_image_sizes(const recipes::Recipe& recipe) {
  return static_cast<bool>(recipe.choose);
}
inline bool takes_program(const recipes::Recipe& recipe) { return recipe.takes_program; }
inline bool splits_folder(const recipes::Recipe& recipe) { return recipe.splits_folder; }
inline bool reads_image_folder(const recipes::Recipe& recipe) { return recipe.reads_image_folder; }
inline bool has_channels_last(const recipes::Recipe& recipe) { return recipe.channels_last; }
inline bool has_fused_kernels(const recipes::Recipe& recipe) { return recipe.has_fused_kernels; }

/// "classify and autoencoder only", for the help of an option that only these recipes have.
template <class Predicate>
std::string only_recipes(const Predicate& has) {
  return join(recipes_with(has), " and ") + " only";
}

}  // namespace lockstep::cli
