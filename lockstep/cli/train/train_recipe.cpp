#include <lockstep/cli/train/train_recipe.h>

#include <system_error>
#include <vector>

#include <lockstep/bench/sizes.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

// ConfigError if `recipe` does not support what `option` sets.
template <class Predicate>
void require_of_recipe(const char* option, bool is_given, const recipes::Recipe& recipe,
                       const Predicate& has) {
  if (!is_given || has(recipe)) return;
  throw ConfigError(lockstep::str("train: ", option, " has no effect on ", recipe.name,
                                  "; it belongs to ", join(recipes_with(has), " and "), "; remove ",
                                  option));
}

// ConfigError if `recipe` does not split or cache its images, which `option` is about.
void require_split_images(const char* option, bool is_given, const recipes::Recipe& recipe,
                          bool has_packs) {
  if (!is_given || has_packs || recipe.splits_folder) return;
  throw ConfigError(lockstep::str("train: ", option, " has no effect on ", recipe.name,
                                  " unless --data is a pack; it belongs to packs, ",
                                  join(recipes_with(splits_folder), " and "), "; remove ", option));
}

// "classify, autoencoder and packs only", for the help of the options of split images.
std::string only_split_images() { return join(recipes_with(splits_folder)) + " and packs only"; }

// "224 for classify, 160 for autoencoder": the sides of images unless --image-size is given.
std::string default_image_sizes() {
  std::vector<std::string> sizes;
  for (const std::string& name : recipes_with(has_image_sizes)) {
    sizes.push_back(lockstep::str(recipes::find_recipe(name).input.height, " for ", name));
  }
  return join(sizes);
}

std::int64_t parse_cache(const std::string& text) {
  if (text == "none") return 0;
  try {
    return bench::parse_bytes("train: --cache", text);
  } catch (const ConfigError&) {
    throw ConfigError(lockstep::str(
        "train: --cache must be a size such as 2GB, up to 1TiB, or none, got '", text, "'"));
  }
}

std::filesystem::path existing_file(const char* option, const std::string& path,
                                    const char* kinds) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return path;
  const bool exists = std::filesystem::exists(path, ignored);
  throw ConfigError(lockstep::str("train: ", option, ' ', path,
                                  exists ? " is not a file" : " does not exist", "; give a ", kinds,
                                  " file"));
}

}  // namespace

void add_recipe_options(CLI::App& command, RecipeArguments& to) {
  const HelpGroup group(command, kRecipeGroup);
  command.add_option("--model", to.model,
                     "Network: " + join(recipes::find_recipe("classify").models) + " (" +
                         only_recipes(has_models) + ", default resnet18)");
  command
      .add_option("--program", to.program,
                  "File of torch.export.save (.pt2) whose model is trained in the place of the "
                  "recipe's own, with its weights (" +
                      only_recipes(takes_program) + ")")
      ->type_name("FILE");
  command
      .add_option("--image-size", to.image_size,
                  lockstep::str(
                      "Side of the network's input images, in pixels: for classify 64 to 4096, for "
                      "autoencoder a multiple of 20 up to 4000 (",
                      only_recipes(has_image_sizes), ", default ", default_image_sizes(), ")"))
      ->transform(whole_number<std::int64_t>());
  command
      .add_option("--weights", to.weights,
                  "File of initial weights (.safetensors, .pt or .pth), with the names of the "
                  "network's parameters; if the last layer has another number of outputs in the "
                  "file, it is initialized at random")
      ->type_name("FILE");
  command.add_option(
      "--val-fraction", to.val_fraction,
      lockstep::str("Share of the images of a folder or pack held out for validation (",
                    only_split_images(), ", default ", recipes::kValidationFraction, ")"));
  command
      .add_option(
          "--cache", to.cache,
          "Maximum size of the cache of decoded images, such as 2GB or 500MB, or none. The "
          "ranks that this program starts share one cache; ranks that another launcher "
          "starts have one each (" +
              only_split_images() +
              ", --loader native only; "
              "default: none for classify and for packs of pixels, and for autoencoder 1GiB but at "
              "most a quarter of the free memory)")
      ->type_name("SIZE");
}

RecipeSettings resolve_recipe(const std::string& name, const RecipeArguments& arguments,
                              bool has_packs) {
  const recipes::Recipe& recipe = recipes::find_recipe(name);
  require_of_recipe("--model", arguments.model.has_value(), recipe, has_models);
  require_of_recipe("--program", arguments.program.has_value(), recipe, takes_program);
  require_of_recipe("--image-size", arguments.image_size.has_value(), recipe, has_image_sizes);
  require_split_images("--val-fraction", arguments.val_fraction.has_value(), recipe, has_packs);
  require_split_images("--cache", arguments.cache.has_value(), recipe, has_packs);
  if (arguments.val_fraction) {
    OptionCheck("train").in_range("--val-fraction", *arguments.val_fraction, 0, 1);
  }
  if (arguments.program && arguments.model) {
    throw ConfigError("train: --model and --program cannot be combined");
  }
  RecipeSettings settings;
  recipes::RecipeChoices choices{.model = arguments.model, .image_size = arguments.image_size};
  if (arguments.program) {
    // A run may be resumed from another folder.
    choices.program =
        std::filesystem::absolute(existing_file("--program", *arguments.program, ".pt2"))
            .lexically_normal()
            .string();
  }
  settings.recipe = std::make_shared<const recipes::Recipe>(recipes::chosen_recipe(name, choices));
  settings.validation_fraction = arguments.val_fraction;
  if (arguments.cache) settings.cache_bytes = parse_cache(*arguments.cache);
  if (arguments.weights) {
    settings.weights = existing_file("--weights", *arguments.weights, ".safetensors, .pt or .pth");
  }
  return settings;
}

}  // namespace lockstep::cli
