// Mixing the images of a batch with each other: which way, and what is drawn for a batch. What it
// does to tensors is in batch_mix.h. Meanings and defaults are those of torchvision.transforms.v2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <lockstep/data/images/image.h>

namespace lockstep {

/// Each image becomes lambda * itself + (1 - lambda) * the one before it in the batch, with one
/// lambda for the batch from Beta(alpha, alpha); the first one's partner is the last. (Zhang et
/// al.: "mixup: Beyond empirical risk minimization", 2018.)
struct MixUp {
  double alpha = 1.0;
};

/// In each image a rectangle shows the one before it in the batch, as above. Its area is 1 - lambda
/// of the image, with lambda from Beta(alpha, alpha), its centre any pixel, and what lies outside
/// is cut off. (Yun et al.: "CutMix: Regularization strategy to train strong classifiers with
/// localizable features", 2019.)
struct CutMix {
  double alpha = 1.0;
};

/// One of the two for each batch, equally likely: torchvision's RandomChoice([CutMix(), MixUp()]).
struct RandomMix {
  CutMix cutmix{};
  MixUp mixup{};
};

/// monostate: batches stay as they are.
using BatchMix = std::variant<std::monostate, MixUp, CutMix, RandomMix>;

/// "none", "MixUp(alpha=0.2)", "CutMix(alpha=1) or MixUp(alpha=0.2)".
std::string to_string(const BatchMix& mix);

/// ConfigError, naming the operator, for an alpha that is not from 0.001 to 1000.
void check_mix(const BatchMix& mix);

/// Which batch of which pass of which rank: all that the choice depends on, beside the images'
/// size. Ranks draw for themselves.
struct BatchKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t batch = 0;  ///< its number or place in the rank's epoch, below 2^40
  std::uint64_t rank = 0;   ///< or what else tells ranks apart, below 2^24
};

struct MixChoice {
  /// The share of an image's own label; CutMix's is that of the pixels that stay, after cutting
  /// off.
  double lambda = 1;
  /// CutMix: where the partner is shown, perhaps nowhere. None: all pixels are mixed by lambda.
  std::optional<Box> box{};

  bool operator==(const MixChoice&) const = default;
};

/// Draws which of RandomMix's two, then lambda, then the column and the row of CutMix's centre. The
/// numbers are not those of any sample's augmentation.
MixChoice choose(const BatchMix& mix, std::int64_t height, std::int64_t width, const BatchKey& key);

}  // namespace lockstep
