// The images at a path: a folder of image files or a pack.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/formats/pack.h>

namespace lockstep::data {

/// Opens a folder as load_image_folder() does, and a file as load_packed_images() does, with the
/// options that apply to both. `rgb` is PackedImagesOptions::rgb; a folder's images always have
/// three channels. Throws the errors of these two, and that of require_data() if there is nothing
/// at `path`.
ImageDataset open_images(const std::filesystem::path& path, const ImageFolderOptions& options = {},
                         bool rgb = false);

/// Throws ConfigError if there is nothing at the path of a data set. Its text is `before`, the path
/// and what to give instead: "train: --data photos does not exist; give ...".
void require_data(const std::filesystem::path& path, const std::string& before = "");

/// The kind of the pack at `path`; nothing unless there is a file that begins as a pack does.
/// Throws a DataError if the pack is damaged.
std::optional<formats::PackKind> pack_kind(const std::filesystem::path& path);

}  // namespace lockstep::data
