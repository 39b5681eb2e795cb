// Images, lists of operators and comparisons for tests of the dali engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/loader.h>
#include <tests/data/loader/epoch_batches.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {

inline const Normalize kNormalize{{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
inline const Augmentation kCifar = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, kNormalize};

/// Planar images of all byte values, each with a label byte in front.
inline ImageDataset records(std::int64_t count, ImageShape shape = {3, 32, 32}) {
  const std::int64_t stride = shape.elements() + 1;
  auto bytes = std::make_shared<std::string>(pattern(static_cast<std::size_t>(count * stride), 7));
  ImageShard shard;
  shard.labels = reinterpret_cast<const std::uint8_t*>(bytes->data());
  shard.images = shard.labels + 1;
  shard.image_stride = shard.label_stride = stride;
  shard.count = count;
  shard.keep_alive = bytes;
  return ImageDataset("records", shape, 256, {shard});
}

inline LoaderOptions with(LoaderEngineKind engine, LoaderOptions options) {
  options.engine = engine;
  return options;
}

inline Loader make(const ImageDataset& dataset, const Augmentation& operators,
                   LoaderEngineKind engine, LoaderOptions options) {
  return Loader(dataset, DistributedSampler(dataset.size(), {.seed = 3}), operators,
                with(engine, options));
}

struct Difference {
  double mean = 0;  // on the scale from 0 to 255
  double worst = 0;
};

/// Compares two epochs, whose labels must be equal.
inline Difference compare(const ImageDataset& dataset, const Augmentation& operators,
                          LoaderOptions options) {
  Loader native = make(dataset, operators, LoaderEngineKind::kNative, options);
  Loader dali = make(dataset, operators, LoaderEngineKind::kDali, options);
  const auto channels = static_cast<std::int64_t>(dataset.shape().channels);
  const auto& normalize =
      std::get<Normalize>(*std::find_if(operators.begin(), operators.end(), [](const Operator& op) {
        return std::holds_alternative<Normalize>(op);
      }));
  const auto bytes = torch::tensor(normalize.std).mul(255).view({1, channels, 1, 1});
  Difference difference;
  double sum = 0;
  std::int64_t count = 0;
  for (const std::int64_t epoch : {0, 5}) {
    const auto expected = read_epoch(native, epoch);
    const auto got = read_epoch(dali, epoch);
    EXPECT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      EXPECT_TRUE(torch::equal(got[i].labels, expected[i].labels)) << "batch " << i;
      EXPECT_EQ(got[i].images.sizes(), expected[i].images.sizes());
      EXPECT_EQ(got[i].images.strides(), expected[i].images.strides());
      EXPECT_EQ(got[i].images.dtype(), expected[i].images.dtype());
      const auto off =
          (got[i].images.cpu().to(torch::kFloat64) - expected[i].images.cpu().to(torch::kFloat64))
              .abs() *
          bytes;
      sum += off.sum().item<double>();
      count += off.numel();
      difference.worst = std::max(difference.worst, off.max().item<double>());
    }
  }
  EXPECT_GT(count, 0);
  difference.mean = sum / static_cast<double>(count);
  return difference;
}

/// A difference of one byte would be 1. This is the difference between two ways of rounding (byte -
/// mean) / std.
inline constexpr double kRounding = 1e-4;

/// Operators for pictures of several sizes and types, in the layout of an image folder.
inline const Augmentation kPhoto = {RandomResizedCrop{48}, RandomHorizontalFlip{}, kNormalize};
inline const Augmentation kValidation = {Resize{60, true}, CenterCrop{48}, kNormalize};

}  // namespace lockstep::testing_support
