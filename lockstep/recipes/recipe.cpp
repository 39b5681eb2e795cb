#include <lockstep/recipes/recipe.h>

#include <charconv>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::recipes {

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> all = {mnist_recipe(),    cifar10_recipe(),
                                          classify_recipe(), autoencoder_recipe(),
                                          program_recipe(),  resnet50_split_recipe()};
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw ConfigError(not_one_of("recipe", name, names));
}

Recipe chosen_recipe(const std::string& name, const RecipeChoices& choices) {
  const Recipe& recipe = find_recipe(name);
  if (choices.model && recipe.models.empty()) {
    throw ConfigError(lockstep::str("recipe ", name, " has one model, which it trains; got '",
                                    *choices.model, "' for its model"));
  }
  if (choices.program && !recipe.takes_program) {
    throw ConfigError(lockstep::str("recipe ", name, " trains its own model, not a program; got '",
                                    *choices.program, "'"));
  }
  if (choices.program && choices.model) {
    throw ConfigError(lockstep::str("recipe ", name, ": the model '", *choices.model,
                                    "' and the program ", *choices.program, " cannot be combined"));
  }
  if (recipe.needs_program && !choices.program) {
    throw ConfigError(lockstep::str("recipe ", name, " trains the model of a program, got none"));
  }
  if (choices.inputs && !recipe.needs_program) {
    throw ConfigError(lockstep::str("recipe ", name, " knows the inputs of its model; got '",
                                    *choices.inputs, "' for them"));
  }
  if (!choices.model && !choices.image_size && !choices.program) return recipe;
  if (recipe.choose) return recipe.choose(choices);
  throw ConfigError(lockstep::str("recipe ", name, " takes images of ", recipe.input.height, "x",
                                  recipe.input.width, " pixels only; got ", *choices.image_size,
                                  " for their size"));
}

RecipeChoices choices_from(const std::map<std::string, std::string>& texts) {
  RecipeChoices choices;
  if (const auto model = texts.find(kModelChoice); model != texts.end()) {
    choices.model = model->second;
  }
  if (const auto program = texts.find(kProgramChoice); program != texts.end()) {
    choices.program = program->second;
  }
  if (const auto inputs = texts.find(kInputsChoice); inputs != texts.end()) {
    choices.inputs = inputs->second;
  }
  if (const auto images = texts.find(kImagesChoice); images != texts.end()) {
    choices.images = images->second;
  }
  if (const auto found = texts.find(kImageSizeChoice); found != texts.end()) {
    const std::string& text = found->second;
    std::int64_t size = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, size);
    if (error != std::errc() || stop != end) {
      throw ConfigError(
          lockstep::str(kImageSizeChoice, " of a recipe must be a whole number, got '", text, "'"));
    }
    choices.image_size = size;
  }
  return choices;
}

void require_stages(const Recipe& recipe, int stages) {
  const std::string owner = "recipe " + recipe.name;
  if (recipe.max_stages > 0) {
    OptionCheck(owner).in_range("the number of stages", stages, 1, recipe.max_stages);
    return;
  }
  std::vector<std::string> others;
  for (const Recipe& each : all_recipes()) {
    if (each.max_stages > 0) others.push_back(each.name);
  }
  throw ConfigError(lockstep::str(
      owner, ": the model cannot be cut into stages; recipes whose model can: ", join(others)));
}

}  // namespace lockstep::recipes
