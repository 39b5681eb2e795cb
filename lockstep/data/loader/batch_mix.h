// MixUp and CutMix on a batch of tensors.
//
//   const MixChoice choice =
//       choose(CutMix{}, height, width, {.epoch = 3, .batch = step, .rank = 1});
//   mix_images(batch.images, choice);
//   const torch::Tensor labels = mix_labels(batch.labels, num_classes, choice);
//   const torch::Tensor loss = torch::cross_entropy_loss(net(batch.images), labels);
#pragma once

#include <torch/types.h>

#include <cstdint>

#include <lockstep/data/augment/mix_choice.h>

namespace lockstep {

/// Mixes each of images [size, channels, height, width] with the one before it, the first with the
/// last, in place: the numbers of torchvision.transforms.v2.MixUp and CutMix. Any device and
/// layout; MixUp needs floating point. CutMix, and MixUp of float32, take one pass of the calling
/// thread on the CPU, and memory for one image; MixUp of other types, other devices and views with
/// gaps take memory for the batch. ConfigError when the images are not of that shape or type, or
/// the box is not inside of them.
void mix_images(torch::Tensor& images, const MixChoice& choice);

/// The labels' probabilities, float32 [size, num_classes], on the labels' device: lambda for an
/// image's own of `labels` (int64 [size]) and 1 - lambda for that of the image before it. DataError
/// for a label that is no class, on the CPU; other devices report it in their own way.
torch::Tensor mix_labels(const torch::Tensor& labels, std::int64_t num_classes,
                         const MixChoice& choice);

}  // namespace lockstep
