// A data set of image files with one folder per class.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct LOCKSTEP_API ImageFolderOptions {
  /// kExact: images are decoded at full size, and results equal torchvision's (a resized byte may
  /// differ by 1; for PNGs of 16-bit grey see png.h). kScaled: a JPEG that a Resize shrinks
  /// strongly is decoded at a half, a quarter or an eighth of its size. That is faster, and pixels
  /// differ by at most 0.9 of 255 levels in the mean, see ImageReader::reduced().
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// Images of more pixels are rejected when they are read, before memory is allocated. A decoder
  /// needs up to 12 bytes per pixel.
  std::int64_t max_image_pixels = kMaxImagePixels;
  /// Whether photographs are turned upright by their EXIF orientation, as Pillow's
  /// ImageOps.exif_transpose() does. Otherwise the orientation is ignored, as torchvision's
  /// ImageFolder ignores it. A photograph that has to be turned is decoded as a whole, and the DALI
  /// engine leaves the decoding to this library.
  bool exif_transpose = false;
  /// Whether files of the formats that torchvision reads but this library does not (.bmp, .gif,
  /// .pgm, .ppm, .tif, .tiff, .webp) are images of the data set, too. Each is then refused when it
  /// is read, like a damaged image: check_images() lists it, and OnCorruptImage::kSkip skips it.
  bool keep_unreadable = false;
};

/// Like torchvision.datasets.ImageFolder: the classes are the subfolders of `directory` in the
/// order of their names, and their images are all files below them that end in .jpg, .jpeg, .png,
/// .jpe or .jfif (the last two are JPEGs that torchvision ignores), in the order of their paths.
/// Case does not matter, other files are ignored, links are followed.
/// Each image has its own size and three channels; the classes are named after their folders. The
/// fingerprint covers the paths below `directory`, but not the contents of the files.
///
/// Reads names only. Throws a ConfigError if an option is out of range. Throws a DataError if a
/// folder cannot be read (the message names it), there is no class, a class has no image, two
/// classes have names that records would confuse ("\xe9", and the byte 0xe9 alone), or, without
/// ImageFolderOptions::keep_unreadable, an image has a format that torchvision reads but this
/// library does not: such an image would otherwise be left out silently.
LOCKSTEP_API ImageDataset load_image_folder(const std::filesystem::path& directory,
                                            const ImageFolderOptions& options = {});

/// The image files in `directory` and in all folders below it, in the order of their paths: those
/// that load_image_folder() reads, and those whose format it refuses. Throws a DataError if a
/// folder cannot be read or there is no such file.
LOCKSTEP_API std::vector<std::filesystem::path> list_image_files(
    const std::filesystem::path& directory);

}  // namespace lockstep
