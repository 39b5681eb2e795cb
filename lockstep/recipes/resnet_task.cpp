#include <lockstep/recipes/resnet_task.h>

#include <vector>

#include <lockstep/models/resnet_stages.h>

namespace lockstep {

std::unique_ptr<Task> make_resnet_task(const ResNet& net) {
  const auto cut = [net](int count) {
    std::vector<pipeline::StageModule> stages;
    for (const ResNetStage& stage : resnet_stages(net, resnet_cuts(net, count))) {
      stages.emplace_back(stage);
    }
    return stages;
  };
  return std::make_unique<ClassificationTask>(net, ClassificationLoss::kCrossEntropy, cut);
}

}  // namespace lockstep
