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

namespace lockstep::data {

/// Mixes each image of `images` ([size, channels, height, width]) with the one before it, and the
/// first with the last, in place. The results equal those of torchvision.transforms.v2.MixUp and
/// CutMix. The images may be on any device and in any layout; MixUp requires floating point. On the
/// CPU, CutMix, and MixUp of float32, take one pass of the calling thread and memory for one image.
/// MixUp of other types, on other devices or of views with gaps takes memory for the batch. Throws
/// a ConfigError if the images do not have this shape or type, or the box is not inside them.
void mix_images(torch::Tensor& images, const MixChoice& choice);

/// Returns the class probabilities of the mixed images, float32 [size, num_classes], on the labels'
/// device: lambda for an image's own label in `labels` (int64 [size]), and 1 - lambda for the label
/// of the image before it. Throws a ConfigError for labels of another type or shape. On the CPU,
/// throws a DataError for a label out of range; other devices report it in their own way.
torch::Tensor mix_labels(const torch::Tensor& labels, std::int64_t num_classes,
                         const MixChoice& choice);

}  // namespace lockstep::data
