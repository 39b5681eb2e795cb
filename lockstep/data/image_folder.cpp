#include <lockstep/data/image_folder.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kReadable = {".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 7> kUnreadable = {".bmp", ".gif",  ".pgm", ".ppm",
                                                         ".tif", ".tiff", ".webp"};

class FolderSource final : public ImageSource {
 public:
  struct File {
    std::string path;
    std::int64_t label;
  };
  FolderSource(std::vector<File> files, const ImageFolderOptions& options)
      : files_(std::move(files)), options_(options) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    reader.open(files_[static_cast<std::size_t>(index)].path, options_.decoding,
                options_.max_image_pixels);
  }
  std::int64_t label(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].label;
  }
  bool is_file(std::int64_t) const override { return true; }

 private:
  std::vector<File> files_;
  ImageFolderOptions options_;
};

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return extension;
}

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> class_folders(const fs::path& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The files of a folder come before those of the folders in it.
std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> images;
  constexpr auto kLinks = fs::directory_options::follow_directory_symlink;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, kLinks)) {
    if (entry.is_directory()) continue;
    const std::string extension = lower_extension(entry.path());
    if (contains(kUnreadable, extension)) {
      throw DataError(str(entry.path().string(), ": ", extension,
                          " files are not read; convert it to PNG or JPEG, or move it away"));
    }
    if (contains(kReadable, extension)) images.push_back(entry.path());
  }
  std::sort(images.begin(), images.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(a.parent_path().native(), a.filename().native()) <
           std::pair(b.parent_path().native(), b.filename().native());
  });
  return images;
}

}  // namespace

ImageDataset load_image_folder(const fs::path& directory, const ImageFolderOptions& options) {
  OptionCheck("load_image_folder")
      .in_range("max_image_pixels", static_cast<double>(options.max_image_pixels), 1,
                static_cast<double>(kMaxImagePixelsLimit));
  std::vector<FolderSource::File> files;
  std::vector<std::string> classes;
  try {
    classes = class_folders(directory);
    for (const std::string& name : classes) {
      const std::vector<fs::path> images = images_below(directory / name);
      if (images.empty()) {
        throw DataError(str((directory / name).string(), ": holds no .jpg, .jpeg or .png file"));
      }
      const std::int64_t label = &name - classes.data();
      for (const fs::path& image : images) files.push_back({image.string(), label});
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(str("cannot read ", error.path1().string(), ": ", error.code().message()));
  }
  if (classes.empty()) {
    throw DataError(str(directory.string(), ": has no subfolders, of which each would be a class"));
  }
  const fs::path shown = directory.filename().empty() ? directory.parent_path() : directory;
  return ImageDataset(str("images of ", shown.filename().string()), {3, 0, 0},
                      static_cast<std::int64_t>(classes.size()),
                      std::make_shared<const FolderSource>(std::move(files), options), classes);
}

}  // namespace lockstep
