#include <lockstep/recipes/resnet_task.h>

#include <lockstep/models/resnet_stages.h>

namespace lockstep::recipes {

std::unique_ptr<Task> make_resnet_task(const ResNet& net) {
  const auto cut = [net](int count) {
    return pipeline::stage_modules(resnet_stages(net, resnet_cuts(net, count)));
  };
  return std::make_unique<ClassificationTask>(net, ClassificationLoss::kCrossEntropy, cut);
}

}  // namespace lockstep::recipes
