#include <lockstep/bench/strategies/work.h>

#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/mnist_stages.h>
#include <lockstep/models/resnet.h>
#include <lockstep/models/resnet_stages.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/train/optimization/memory_format.h>

namespace lockstep::bench {
namespace {

constexpr std::int64_t kFewClasses = 10;
constexpr std::int64_t kManyClasses = 1000;

std::int64_t classes_of(const std::string& model) {
  return model == "resnet50" ? kManyClasses : kFewClasses;
}

std::unique_ptr<OutputTask> make_mnist() {
  const MnistNet net;
  return std::make_unique<ClassificationTask>(
      net, ClassificationLoss::kNegativeLogLikelihood,
      [net](int count) { return pipeline::stage_modules(mnist_stages(net, count)); });
}

ResNet make_resnet(const std::string& model) {
  ResNet net = model == "resnet18" ? resnet18(ResNetStem::kCifar, kFewClasses)
                                   : resnet50(ResNetStem::kImageNet, kManyClasses);
  train::to_channels_last(*net);
  return net;
}

std::unique_ptr<OutputTask> make_resnet_task(const ResNet& net, std::vector<StageCuts> cuts) {
  const auto names_of = [net, cuts = std::move(cuts)](int count) {
    for (const StageCuts& each : cuts) {
      if (each.stages == count) return each.names;
    }
    return resnet_cuts(net, count);
  };
  return std::make_unique<ClassificationTask>(
      net, ClassificationLoss::kCrossEntropy, [net, names_of](int count) {
        return pipeline::stage_modules(resnet_stages(net, names_of(count)));
      });
}

}  // namespace

std::unique_ptr<OutputTask> make_strategy_task(const std::string& model,
                                               const std::vector<StageCuts>& cuts) {
  if (model == "mnist") return make_mnist();
  if (model == "resnet18" || model == "resnet50") return make_resnet_task(make_resnet(model), cuts);
  throw ConfigError(lockstep::str("bench step: no model '", model, "'"));
}

StageCuts balanced_cuts(const std::string& model, std::int64_t image_size, std::int64_t samples,
                        int stages) {
  const ResNet net = make_resnet(model);
  const std::vector<std::string> every = resnet_blocks(net);
  torch::nn::Sequential blocks;
  for (const ResNetStage& block : resnet_stages(net, {every.begin(), every.end() - 1})) {
    blocks->push_back(block);
  }
  const Balance choice =
      balance(blocks, make_strategy_batch(model, image_size, samples).images, stages);
  StageCuts cuts{.stages = stages, .about = choice.text()};
  std::size_t end = 0;
  for (std::size_t s = 0; s + 1 < choice.sizes.size(); ++s) {
    end += static_cast<std::size_t>(choice.sizes[s]);
    cuts.names.push_back(every[end - 1]);
  }
  return cuts;
}

Batch make_strategy_batch(const std::string& model, std::int64_t image_size, std::int64_t size) {
  const std::int64_t channels = model == "mnist" ? 1 : 3;
  torch::Tensor images = torch::randn({size, channels, image_size, image_size});
  if (channels > 1) images = images.contiguous(torch::MemoryFormat::ChannelsLast);
  return {.images = images,
          .labels = torch::randint(classes_of(model), {size}, torch::kLong),
          .size = size};
}

}  // namespace lockstep::bench
