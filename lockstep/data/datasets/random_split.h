// Splits a data set into random parts, for example for validation.
//
//   const auto parts = random_split(dataset, {0.9, 0.1}, seed);     // or {54'000, 6'000}
//   Loader train(parts[0], ...);
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// Splits as torch.utils.data.random_split(dataset, lengths, torch.Generator().manual_seed(seed))
/// does, index for index: disjoint parts of the given lengths, their images in random order. Throws
/// a ConfigError unless every length is at least 1 and they sum to the size of the data set.
LOCKSTEP_API std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                                    const std::vector<std::int64_t>& lengths,
                                                    std::uint64_t seed = 0);

/// Splits by fractions: each part gets floor(size * fraction) images, and the remaining images are
/// distributed one by one to the parts in turn. Throws a ConfigError unless the fractions are from
/// 0 to 1, sum to 1 (or at most 1e-9 below it), and each part gets an image.
LOCKSTEP_API std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                                    const std::vector<double>& fractions,
                                                    std::uint64_t seed = 0);

inline std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                              std::initializer_list<std::int64_t> lengths,
                                              std::uint64_t seed = 0) {
  return random_split(dataset, std::vector<std::int64_t>(lengths), seed);
}

// A template, so that whole numbers in braces are lengths, never fractions.
template <std::floating_point Fraction>
std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       std::initializer_list<Fraction> fractions,
                                       std::uint64_t seed = 0) {
  return random_split(dataset, std::vector<double>(fractions.begin(), fractions.end()), seed);
}

}  // namespace lockstep
