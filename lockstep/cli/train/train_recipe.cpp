#include <lockstep/cli/train/train_recipe.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include <lockstep/bench/sizes.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/recipes/folder_split.h>

namespace lockstep::cli {
namespace {

// ConfigError if `recipe` does not support what `option` sets.
template <class Predicate>
void require_of_recipe(const char* option, bool is_given, const recipes::Recipe& recipe,
                       const Predicate& has) {
  if (!is_given || has(recipe)) return;
  throw ConfigError(lockstep::str("train: ", option, " has no effect on ", recipe.name,
                                  "; it belongs to ", in_words(recipes_with(has)), "; remove ",
                                  option));
}

// ConfigError if `recipe` does not split or cache its images, which `option` is about.
void require_split_images(const char* option, bool is_given, const recipes::Recipe& recipe,
                          bool has_packs) {
  if (!is_given || has_packs || recipe.splits_folder) return;
  throw ConfigError(lockstep::str("train: ", option, " has no effect on ", recipe.name,
                                  " unless --data is a pack; it belongs to packs, ",
                                  in_words(recipes_with(splits_folder)), "; remove ", option));
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

// ConfigError if an option contradicts the data of a program: tensors, known `images`, or images at
// a path.
void check_data_of_program(const RecipeArguments& arguments,
                           const std::optional<std::string>& images) {
  const auto refuse = [](bool is_given, const char* option, const std::string& reason) {
    if (is_given) throw ConfigError(lockstep::str("train: ", option, reason, "; remove it"));
  };
  if (!arguments.inputs) {
    const std::string reason =
        " is about images, but without --inputs the data of program are tensors";
    refuse(arguments.image_size.has_value(), "--image-size", reason);
    refuse(arguments.cache.has_value(), "--cache", reason);
  } else if (images) {
    const std::string reason = " has no effect on --data " + *images;
    refuse(arguments.val_fraction.has_value(), "--val-fraction", reason);
    refuse(arguments.cache.has_value(), "--cache", reason);
  }
}

// The name in recipes::known_images() that `data` is; nothing for a path.
std::optional<std::string> known_images_in(const std::optional<std::string>& data) {
  std::error_code ignored;
  if (!data || std::filesystem::exists(*data, ignored)) return std::nullopt;
  const std::vector<std::string>& names = recipes::known_images();
  if (std::ranges::find(names, *data) == names.end()) return std::nullopt;
  return data;
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
                  "File of torch.export.save (.pt2) whose model is trained, with its weights, in "
                  "the place of the recipe's own; recipe program has none (" +
                      only_recipes(takes_program) + ")")
      ->type_name("FILE");
  command
      .add_option("--inputs", to.inputs,
                  "Inputs of the program that get the images and the labels of --data, such as "
                  "pixel_values=images,labels=labels; --data is then a folder of images, a pack, "
                  "or one of " +
                      join(recipes::known_images()) + " (" + only_recipes(needs_program) +
                      ", default: --data has a tensor for each input)")
      ->type_name("NAME=images,NAME=labels");
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
      lockstep::str("Share of the samples, such as the images of a folder or pack, held out for "
                    "validation (",
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
                              const std::optional<std::string>& data) {
  const recipes::Recipe& recipe = recipes::find_recipe(name);
  const bool has_packs = data && recipes::holds_packs(*data);
  require_of_recipe("--model", arguments.model.has_value(), recipe, has_models);
  require_of_recipe("--program", arguments.program.has_value(), recipe, takes_program);
  require_of_recipe("--inputs", arguments.inputs.has_value(), recipe, needs_program);
  require_of_recipe("--image-size", arguments.image_size.has_value(), recipe, has_image_sizes);
  require_split_images("--val-fraction", arguments.val_fraction.has_value(), recipe, has_packs);
  require_split_images("--cache", arguments.cache.has_value(), recipe, has_packs);
  if (arguments.val_fraction) {
    OptionCheck("train").in_range("--val-fraction", *arguments.val_fraction, 0, 1);
  }
  if (arguments.program && arguments.model) {
    throw ConfigError("train: --model and --program cannot be combined");
  }
  if (recipe.needs_program) {
    if (!arguments.program) {
      throw ConfigError(lockstep::str("train: recipe ", name,
                                      " trains a model that Python exported; give --program FILE, "
                                      "a file of torch.export.save"));
    }
    check_data_of_program(arguments, known_images_in(data));
  }
  RecipeSettings settings;
  recipes::RecipeChoices choices{
      .model = arguments.model, .image_size = arguments.image_size, .inputs = arguments.inputs};
  if (arguments.inputs) choices.images = known_images_in(data);
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
