#include <lockstep/data/datasets/known_data.h>

#include <functional>
#include <map>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/cifar10.h>
#include <lockstep/data/datasets/cifar100.h>
#include <lockstep/data/datasets/mnist.h>

namespace lockstep::data {

ImageDataset load_known_data(const std::string& name, const std::filesystem::path& directory,
                             Split split) {
  using Load = std::function<ImageDataset(const std::filesystem::path&, Split)>;
  static const std::map<std::string, Load> loaders = {
      {"mnist", load_mnist},
      {"cifar10", load_cifar10},
      {"cifar100", [](const auto& folder, Split part) { return load_cifar100(folder, part); }}};
  const auto found = loaders.find(name);
  if (found == loaders.end()) throw ConfigError(str("there is no loader of data set '", name, "'"));
  return found->second(directory, split);
}

}  // namespace lockstep::data
