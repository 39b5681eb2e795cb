#include <lockstep/cli/bench_strategies/strategy_work.h>

#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/mnist_stages.h>
#include <lockstep/models/resnet.h>
#include <lockstep/models/resnet_stages.h>
#include <lockstep/train/memory_format.h>

namespace lockstep {
namespace {

constexpr std::int64_t kFewClasses = 10;
constexpr std::int64_t kManyClasses = 1000;

std::int64_t classes_of(const std::string& model) {
  return model == "resnet50" ? kManyClasses : kFewClasses;
}

template <class Stage>
std::vector<pipeline::StageModule> as_stage_modules(const std::vector<Stage>& stages) {
  std::vector<pipeline::StageModule> modules;
  for (const Stage& stage : stages) modules.emplace_back(stage);
  return modules;
}

std::unique_ptr<OutputTask> make_mnist() {
  const MnistNet net;
  return std::make_unique<ClassificationTask>(
      net, ClassificationLoss::kNegativeLogLikelihood,
      [net](int count) { return as_stage_modules(mnist_stages(net, count)); });
}

std::unique_ptr<OutputTask> make_resnet(const ResNet& net) {
  auto task = std::make_unique<ClassificationTask>(
      net, ClassificationLoss::kCrossEntropy,
      [net](int count) { return as_stage_modules(resnet_stages(net, resnet_cuts(net, count))); });
  to_channels_last(task->module());
  return task;
}

}  // namespace

std::unique_ptr<OutputTask> make_strategy_task(const std::string& model) {
  if (model == "mnist") return make_mnist();
  if (model == "resnet18") return make_resnet(resnet18(ResNetStem::kCifar, classes_of(model)));
  if (model == "resnet50") return make_resnet(resnet50(ResNetStem::kImageNet, classes_of(model)));
  throw ConfigError(lockstep::str("bench step: no model '", model, "'"));
}

Batch make_strategy_batch(const std::string& model, std::int64_t image_size, std::int64_t size) {
  const std::int64_t channels = model == "mnist" ? 1 : 3;
  torch::Tensor images = torch::randn({size, channels, image_size, image_size});
  if (channels > 1) images = images.contiguous(torch::MemoryFormat::ChannelsLast);
  return {.images = images,
          .labels = torch::randint(classes_of(model), {size}, torch::kLong),
          .size = size};
}

}  // namespace lockstep
