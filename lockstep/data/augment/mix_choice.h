// Mixing the images of a batch with each other: the kind of mix, and the random choices for a
// batch. batch_mix.h applies them to tensors. Meanings and defaults are those of
// torchvision.transforms.v2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <lockstep/core/export.h>
#include <lockstep/data/images/image.h>

namespace lockstep {

/// Each image becomes lambda * itself + (1 - lambda) * the image before it in the batch; the first
/// image is paired with the last. One lambda per batch is drawn from Beta(alpha, alpha). (Zhang et
/// al.: "mixup: Beyond empirical risk minimization", 2018.)
struct LOCKSTEP_API MixUp {
  double alpha = 1.0;
};

/// In each image a rectangle shows the image before it in the batch, paired as in MixUp. The
/// rectangle's area is 1 - lambda of the image, with lambda from Beta(alpha, alpha). Its centre is
/// a uniformly random pixel, and the part outside the image is cut off. (Yun et al.: "CutMix:
/// Regularization strategy to train strong classifiers with localizable features", 2019.)
struct LOCKSTEP_API CutMix {
  double alpha = 1.0;
};

/// Applies CutMix or MixUp to each batch, with equal probability: torchvision's
/// RandomChoice([CutMix(), MixUp()]).
struct LOCKSTEP_API RandomMix {
  CutMix cutmix{};
  MixUp mixup{};
};

/// How the images of a batch are mixed; with monostate, batches stay as they are.
using BatchMix = std::variant<std::monostate, MixUp, CutMix, RandomMix>;

/// The mix as text: "none", "MixUp(alpha=0.2)", "CutMix(alpha=1) or MixUp(alpha=0.2)".
LOCKSTEP_API std::string to_string(const BatchMix& mix);

/// Throws a ConfigError that names the operator if alpha is not from 0.001 to 1000.
LOCKSTEP_API void check_mix(const BatchMix& mix);

/// Identifies a batch. The choice for it depends only on this key, the mix and the size of the
/// images. Each rank draws its own choices.
struct LOCKSTEP_API BatchKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t batch = 0;  ///< the batch's number or position in the rank's epoch, below 2^40
  std::uint64_t rank = 0;   ///< the rank, or another number that distinguishes ranks, below 2^24
};

struct LOCKSTEP_API MixChoice {
  /// The weight of an image's own label. For CutMix it is the share of the pixels that stay, after
  /// clipping the rectangle.
  double lambda = 1;
  /// CutMix: the rectangle that shows the partner, possibly empty. MixUp: no rectangle, and all
  /// pixels are mixed by lambda.
  std::optional<ImageRegion> box{};

  bool operator==(const MixChoice&) const = default;
};

/// Draws which of RandomMix's two mixes applies, then lambda, then the column and the row of
/// CutMix's centre. These random numbers are independent of any sample's augmentation.
LOCKSTEP_API MixChoice choose(const BatchMix& mix, std::int64_t height, std::int64_t width,
                              const BatchKey& key);

}  // namespace lockstep
