// Images of a packed file: mapped, not read, so that any order is as fast as the page cache.
//
//   const ImageDataset train = load_packed_images("train.pack");
#pragma once

#include <filesystem>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// When the checksum of a record is compared with what is read. For an image of 160x160 in colour
/// that takes 5 microseconds (14 GB/s), where a crop of it resized to 128x128 takes 45.
enum class PackVerification {
  kFirstRead,  ///< When this process reads it first: damage of the file or on its way is found.
  kEveryRead,  ///< Also what happens to it in memory later.
  kNever,
};

struct PackedImagesOptions {
  PackVerification verification = PackVerification::kFirstRead;
  /// How JPEG files in the pack are decoded, see ImageFolderOptions.
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// Limit for JPEG and PNG files in the pack, as in ImageFolderOptions.
  std::int64_t max_image_pixels = kMaxImagePixels;
};

/// Maps a file that pack_images() or `lockstep data pack` wrote. Its index is verified, no image
/// is read. Pixels are shown where they lie in the map; JPEG and PNG files are decoded as
/// those of an image folder. Names and labels are those of the data set that was packed; the shape
/// is that of all images where they have one size. The file stays open.
///
/// ConfigError when an option is out of range. DataError, naming the file, when it is none,
/// truncated or damaged. read() throws it, naming the record, when that is damaged, and when the
/// file was cut short while it is in use. The file must not be cut short or overwritten in its
/// place all the same: while pixels are shown, a page of them that is cut off ends the process with
/// SIGBUS. Replacing it, as pack_images() does, is safe.
ImageDataset load_packed_images(const std::filesystem::path& path,
                                const PackedImagesOptions& options = {});

}  // namespace lockstep
