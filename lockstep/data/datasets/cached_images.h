// A cache of decoded images in memory, shared by the ranks of a host: epochs after the first do not
// decode again.
//
//   const ImageDataset train =
//       cache_images(load_image_folder("photos"),
//                    {.max_bytes = 1 << 30, .size = ImageSize{160}});
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct LOCKSTEP_API CacheImagesOptions {
  /// Memory for pixels, in bytes, for all processes together. It is allocated when images are
  /// stored, not before.
  std::int64_t max_bytes = 0;
  /// Stores images after a Resize to this size. Use it for lists of operators that begin with the
  /// same Resize, which then is a no-op. Without a size, images are stored unchanged, for lists
  /// that begin with a random crop.
  std::optional<ImageSize> size{};
};

/// Returns `dataset` with a cache: each image is stored in memory when it is first read, and later
/// reads come from memory. Images that do not fit into `max_bytes`, or cannot be decoded
/// completely, are read from `dataset` each time; thus a damaged file fails at the same place as
/// without a cache. If the list begins with the Resize to `size`, batches have the same bytes as
/// without a cache.
///
/// The memory is shared by all processes that are forked after this call, and an image that one of
/// them stores is cached for all: make the cache before the ranks of a host are forked. No process
/// waits for another; a process that is killed while it stores an image leaves that image uncached.
/// Thread-safe, like every ImageDataset. The memory lives as long as the data set and its copies.
///
/// Throws a ConfigError unless `max_bytes` is positive and `size`, if given, is from 1 to 65,535
/// pixels a side, and an Error if the system refuses the address space.
LOCKSTEP_API ImageDataset cache_images(const ImageDataset& dataset,
                                       const CacheImagesOptions& options);

/// The number of bytes that an image of this size takes in a cache.
LOCKSTEP_API std::int64_t cached_bytes(std::int64_t channels, std::int64_t height,
                                       std::int64_t width);

}  // namespace lockstep
