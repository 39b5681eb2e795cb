#include <lockstep/data/datasets/open_images.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <span>
#include <system_error>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/data/datasets/packed_images.h>

namespace lockstep::data {

namespace fs = std::filesystem;

ImageDataset open_images(const fs::path& path, const ImageFolderOptions& options, bool rgb) {
  std::error_code error;
  if (fs::is_directory(path, error)) return load_image_folder(path, options);
  require_data(path);
  return load_packed_images(path, {.decoding = options.decoding,
                                   .max_image_pixels = options.max_image_pixels,
                                   .exif_transpose = options.exif_transpose,
                                   .rgb = rgb});
}

void require_data(const fs::path& path, const std::string& before) {
  std::error_code error;  // with one, a later message is better
  if (fs::exists(path, error) || error) return;
  throw ConfigError(str(before, path.string(),
                        " does not exist; give a folder with a subfolder of images for each class, "
                        "a file made by `lockstep data pack`, or the folder of a known data set's "
                        "files"));
}

std::optional<formats::PackKind> pack_kind(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  std::array<char, 8> first{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(first.data(), first.size()) ||
      !formats::is_pack(std::as_bytes(std::span(first)))) {
    return std::nullopt;
  }
  const MappedFile content(path);
  return formats::PackReader(content.bytes(), path.string()).info().kind;
}

}  // namespace lockstep::data
