// Images of a packed file, which is mapped, not read: the page cache serves them in any order.
//
//   const ImageDataset train = load_packed_images("train.pack");
#pragma once

#include <filesystem>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// When the checksum of an image is verified. Verifying a colour image of 160x160 takes 5
/// microseconds (14 GB/s); cropping it and resizing the crop to 128x128 takes 45.
enum class PackVerification {
  kFirstRead,  ///< On this process's first read: finds damage on disk or in transit.
  kEveryRead,  ///< On every read: also finds later damage in memory.
  kNever,
};

struct LOCKSTEP_API PackedImagesOptions {
  PackVerification verification = PackVerification::kFirstRead;
  /// How JPEG files in the pack are decoded, see ImageFolderOptions.
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// Limit for JPEG and PNG files in the pack, as in ImageFolderOptions.
  std::int64_t max_image_pixels = kMaxImagePixels;
  /// Whether photographs are turned upright by their EXIF orientation, as in ImageFolderOptions.
  /// Only for a pack of JPEG and PNG files: decoded pixels have no EXIF.
  bool exif_transpose = false;
  /// Whether an image of one channel is shown as three equal channels, as an ImageFolder shows a
  /// grey file. The pixels are not copied.
  bool rgb = false;
};

/// Maps a file that pack_images() or `lockstep data pack` wrote. Verifies its index, but reads no
/// image. Pixels are read in place from the mapping; JPEG and PNG files are decoded like the files
/// of an image folder. Names and labels are those of the packed data set. Height and width of the
/// shape are set only if all images have one size, and not with exif_transpose. The fingerprint
/// covers the contents of the images, their labels and all names. The file stays open as long as
/// the data set exists. All processes of a host that map it share its pages.
///
/// Throws a ConfigError if an option is out of range, and for exif_transpose with a pack of pixels.
/// Throws a DataError that names the file if it
/// is missing, truncated or damaged. read() throws a DataError that names the image if its record
/// is damaged, or one that names the file if the file was truncated while in use. Still, the file
/// must not be truncated or overwritten in place: if a page of pixels in use is cut off, the
/// process ends with SIGBUS. Replacing the file, as pack_images() does, is safe.
LOCKSTEP_API ImageDataset load_packed_images(const std::filesystem::path& path,
                                             const PackedImagesOptions& options = {});

}  // namespace lockstep
