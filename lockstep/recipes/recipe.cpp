#include <lockstep/recipes/recipe.h>

#include <lockstep/core/error.h>

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

}  // namespace lockstep
