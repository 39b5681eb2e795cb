// A data set cut into parts at random: for validation, say.
//
//   const auto parts = random_split(dataset, {0.9, 0.1}, seed);     // or {54'000, 6'000}
//   Loader train(parts[0], ...);
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// torch.utils.data.random_split(dataset, lengths, torch.Generator().manual_seed(seed)), index for
/// index: parts of those lengths that have no image in common, their images in random order.
/// ConfigError unless every length is at least 1 and they sum to the size of the data set.
std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       const std::vector<std::int64_t>& lengths,
                                       std::uint64_t seed = 0);

/// Splits by fractions: each part has floor(size * fraction) images, and of those left over one
/// goes to each part in turn. ConfigError unless they are from 0 to 1, sum to 1 (within 1e-9 of it,
/// and not above), and each part gets an image.
std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       const std::vector<double>& fractions,
                                       std::uint64_t seed = 0);

inline std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                              std::initializer_list<std::int64_t> lengths,
                                              std::uint64_t seed = 0) {
  return random_split(dataset, std::vector<std::int64_t>(lengths), seed);
}

// A template: whole numbers in braces are lengths, never fractions.
template <std::floating_point Fraction>
std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       std::initializer_list<Fraction> fractions,
                                       std::uint64_t seed = 0) {
  return random_split(dataset, std::vector<double>(fractions.begin(), fractions.end()), seed);
}

}  // namespace lockstep
