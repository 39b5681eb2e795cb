// All features of the recipe cifar10 combined, on a data set that is learnt in seconds.
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/data/samplers/sampler.h>
#include <lockstep/models/resnet.h>
#include <lockstep/train/optimization/memory_format.h>
#include <lockstep/train/trainer.h>

namespace lockstep::train {
namespace {

constexpr std::int64_t kSmallSet = 16;
constexpr std::int64_t kClasses = 4;
constexpr ImageShape kShape = {3, 32, 32};

// Each class has its own brightness under a common pattern.
ImageDataset photographs() {
  const std::int64_t bytes = kShape.elements();
  auto content = std::make_shared<std::vector<std::uint8_t>>(kSmallSet * (bytes + 1));
  std::uint8_t* const labels = content->data() + kSmallSet * bytes;
  for (std::int64_t i = 0; i < kSmallSet; ++i) {
    labels[i] = static_cast<std::uint8_t>(i % kClasses);
    for (std::int64_t at = 0; at < bytes; ++at) {
      (*content)[static_cast<std::size_t>(i * bytes + at)] =
          static_cast<std::uint8_t>(60 * labels[i] + (at * 7 + i * 13) % 40);
    }
  }
  return ImageDataset("photographs", kShape, kClasses,
                      {{.images = content->data(),
                        .image_stride = bytes,
                        .labels = labels,
                        .label_stride = 1,
                        .count = kSmallSet,
                        .keep_alive = content}});
}

TEST(ResNetTraining, LearnsASmallSet) {
  torch::manual_seed(1);
  ClassificationTask task(resnet18(ResNetStem::kCifar, kClasses),
                          ClassificationLoss::kCrossEntropy);
  to_channels_last(task.module());
  Loader loader(photographs(), DistributedSampler(kSmallSet, {}),
                {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{},
                 Normalize{{0.49, 0.48, 0.45}, {0.25, 0.24, 0.26}}},
                {.batch_size = 8, .channels_last = true});
  Trainer trainer(
      {.max_epochs = 6,
       .optimizer = SgdOptions{.lr = 0.02, .momentum = 0.9, .weight_decay = 5e-4},
       .schedule = {.kind = ScheduleKind::kCosine, .warmup_epochs = 1}},
      make_strategy("single", init_process_group({.environment = WorkerEnvironment{}})));
  const RunReport report = trainer.fit(task, loader);
  EXPECT_LT(report.epochs.back().train_loss, 0.5 * report.epochs.front().train_loss);
}

}  // namespace
}  // namespace lockstep::train
