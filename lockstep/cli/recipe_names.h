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

inline bool has_models(const recipes::Recipe& recipe) { return !recipe.models.empty(); }
inline bool has_image_sizes(const recipes::Recipe& recipe) {
  return static_cast<bool>(recipe.choose);
}
inline bool takes_program(const recipes::Recipe& recipe) { return recipe.takes_program; }
inline bool needs_program(const recipes::Recipe& recipe) { return recipe.needs_program; }
inline bool has_own_model(const recipes::Recipe& recipe) { return !recipe.needs_program; }
inline bool evaluates_image_size(const recipes::Recipe& recipe) {
  return has_image_sizes(recipe) && has_own_model(recipe);
}
inline bool splits_folder(const recipes::Recipe& recipe) { return recipe.splits_folder; }
inline bool reads_image_folder(const recipes::Recipe& recipe) { return recipe.reads_image_folder; }
inline bool has_channels_last(const recipes::Recipe& recipe) { return recipe.channels_last; }
inline bool has_fused_kernels(const recipes::Recipe& recipe) { return recipe.has_fused_kernels; }

/// "a, b and c"
inline std::string in_words(std::vector<std::string> names) {
  if (names.size() < 2) return join(names);
  const std::string last = names.back();
  names.pop_back();
  return join(names) + " and " + last;
}

/// "classify and autoencoder only", for the help of an option that only these recipes have.
template <class Predicate>
std::string only_recipes(const Predicate& has) {
  return in_words(recipes_with(has)) + " only";
}

}  // namespace lockstep::cli
