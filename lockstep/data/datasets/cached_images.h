// Decoded images that stay in memory, for the ranks of a host together: no epoch after the first
// decodes again.
//
//   const ImageDataset train = cache_images(load_image_folder("photos"), {.max_bytes = 1 << 30,
//                                                                          .size =
//                                                                          ImageSize{160}});
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct CacheImagesOptions {
  /// Memory for pixels, in bytes, of all processes together. It is taken when images are stored,
  /// not before.
  std::int64_t max_bytes = 0;
  /// Images are stored as a Resize to this size leaves them: for lists of operators that begin with
  /// that Resize, which then finds nothing to do. Without a size they are stored as they are, for
  /// lists that begin with a random crop.
  std::optional<ImageSize> size{};
};

/// `dataset`, of which each image is stored in memory when it is read first, and read from there
/// from then on. Images for which `max_bytes` leaves no room are read from `dataset` each time, and
/// so are those that cannot be decoded whole: a damaged file fails where it would without a cache.
/// Batches are the same bytes as without a cache, if their list begins with the Resize to `size`.
///
/// The memory is shared with processes that are forked after this call, whichever of them has read
/// an image: make the cache before the ranks of a host are forked. Nobody waits for another
/// process; one that is killed while it stores an image leaves that image uncached. Any thread may
/// read, as from every ImageDataset. The memory lives as long as the data set and its copies.
///
/// ConfigError unless `max_bytes` is positive and `size`, if given, is from 1 to 65,535 pixels a
/// side. Error when the system refuses the address space.
ImageDataset cache_images(const ImageDataset& dataset, const CacheImagesOptions& options);

/// The bytes that an image of this size takes in a cache.
std::int64_t cached_bytes(std::int64_t channels, std::int64_t height, std::int64_t width);

}  // namespace lockstep
