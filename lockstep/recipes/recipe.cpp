#include <lockstep/recipes/recipe.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {mnist_recipe(), cifar10_recipe(),
                                          resnet50_split_recipe()};
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw ConfigError(lockstep::str("there is no recipe \"", name, "\"; known are: ", join(names)));
}

void require_stages(const Recipe& recipe, int stages) {
  const std::string owner = "recipe " + recipe.name;
  if (recipe.max_stages > 0) {
    OptionCheck(owner).in_range("the number of stages", stages, 1, recipe.max_stages);
    return;
  }
  std::vector<std::string> others;
  for (const Recipe& each : recipes()) {
    if (each.max_stages > 0) others.push_back(each.name);
  }
  throw ConfigError(lockstep::str(
      owner, ": the model cannot be cut into stages; recipes whose model can: ", join(others)));
}

}  // namespace lockstep
