// Image files in a folder for each class.
#pragma once

#include <filesystem>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct ImageFolderOptions {
  /// kExact: images are decoded at full size, and results are torchvision's (a resized byte may
  /// differ by 1; for PNGs of 16-bit grey see png.h). kScaled: a JPEG that a Resize makes much
  /// smaller is decoded at a half, a quarter or an eighth of its size, which is faster and at most
  /// 0.9 of 255 levels away in the mean, see ImageReader::reduced().
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// Images of more pixels are refused when they are read, before memory is asked for. A decoder
  /// holds up to 12 bytes for each pixel.
  std::int64_t max_image_pixels = kMaxImagePixels;
};

/// torchvision.datasets.ImageFolder: the classes are the subfolders of `directory` in the order of
/// their names, their images all files below them that end in .jpg, .jpeg or .png, in the order of
/// their paths; case does not matter, other files are ignored, links are followed. Each image has
/// its own size and three channels; the classes are called as their folders. Its fingerprint stands
/// for the paths below `directory`, and not for what the files hold.
///
/// Reads names only. ConfigError when an option is out of range. DataError when a folder cannot be
/// read (it is named), there is no class, a class has no image, or an image is of a kind that
/// torchvision reads and we do not (.bmp, .gif, .pgm, .ppm, .tif, .tiff, .webp): it would be
/// missing unnoticed.
ImageDataset load_image_folder(const std::filesystem::path& directory,
                               const ImageFolderOptions& options = {});

}  // namespace lockstep
