// The options of `lockstep train` about the recipe itself: its model, the size of its images, and
// how it takes a folder of images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/recipes/recipe.h>

namespace lockstep {

/// As the user gave them; absent where the recipe's default counts.
struct RecipeArguments {
  std::optional<std::string> model;
  std::optional<std::int64_t> image_size;
  std::optional<std::string> weights;
  std::optional<double> val_fraction;
  std::optional<std::string> cache;
};

struct RecipeSettings {
  std::shared_ptr<const Recipe> recipe;
  std::filesystem::path weights;  ///< file to begin with; empty: random weights
  std::optional<double> validation_fraction;
  std::optional<std::int64_t> cache_bytes;
};

/// `to` must outlive the parsing.
void add_recipe_options(CLI::App& command, RecipeArguments& to);

/// ConfigError, which names the option, for one that the recipe `name` does not have, a value out
/// of range, and a file of weights that does not exist.
RecipeSettings resolve_recipe(const std::string& name, const RecipeArguments& arguments);

}  // namespace lockstep
