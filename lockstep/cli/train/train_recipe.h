// Options of `lockstep train` for the recipe: its model, the size of its images, and how it uses a
// folder of images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/recipes/recipe.h>

namespace lockstep::cli {

/// The heading of the recipes' options in `lockstep train --help`.
inline constexpr const char* kRecipeGroup = "Recipe";

/// The options as given by the user; absent: the recipe's default.
struct RecipeArguments {
  std::optional<std::string> model;
  std::optional<std::string> program;
  std::optional<std::string> inputs;
  std::optional<std::int64_t> image_size;
  std::optional<std::string> weights;
  std::optional<double> val_fraction;
  std::optional<std::string> cache;

  bool operator==(const RecipeArguments&) const = default;
};

struct RecipeSettings {
  std::shared_ptr<const recipes::Recipe> recipe;
  std::filesystem::path weights;  ///< file of initial weights; empty: random weights
  std::optional<double> validation_fraction;
  std::optional<std::int64_t> cache_bytes;
};

/// Adds the options to `command`; `to` must outlive the parsing.
void add_recipe_options(CLI::App& command, RecipeArguments& to);

/// Throws ConfigError, which names the option, if the recipe `name` does not support it, if a value
/// is out of range, or if the file of weights does not exist. `data` is the value of --data: with
/// packs (recipes::holds_packs()) every recipe supports --val-fraction and --cache, and a program
/// can be trained on the images of recipes::known_images().
RecipeSettings resolve_recipe(const std::string& name, const RecipeArguments& arguments,
                              const std::optional<std::string>& data = std::nullopt);

}  // namespace lockstep::cli
