#include <lockstep/data/datasets/image_folder.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/directory.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/formats/checksum.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kReadable = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"};
constexpr std::array<std::string_view, 7> kUnreadable = {".bmp", ".gif",  ".pgm", ".ppm",
                                                         ".tif", ".tiff", ".webp"};

// A folder that directly contains images of a class.
struct ImagesOfFolder {
  std::string path;
  std::int64_t label = 0;
  std::vector<std::string> names;
};

// The checksum of the paths below a folder whose own path has `prefix` characters, with or without
// a trailing slash.
std::uint64_t fingerprint_of(std::size_t prefix, const std::vector<ImagesOfFolder>& folders) {
  formats::Checksum sum;
  const auto add = [&sum](const std::string& text) {
    sum.add(std::as_bytes(std::span(text)));
    sum.add(std::as_bytes(std::span("", 1)));  // ends the text
  };
  for (const ImagesOfFolder& folder : folders) {
    const std::size_t begin = folder.path.find_first_not_of('/', prefix);
    add(folder.path.substr(std::min(begin, folder.path.size())));
    for (const std::string& name : folder.names) add(name);
  }
  return sum.value();
}

// Stores names rather than paths: most names fit into a string without heap memory.
class FolderSource final : public ImageSource {
 public:
  FolderSource(const fs::path& directory, std::vector<ImagesOfFolder> folders,
               const ImageFolderOptions& options)
      : options_(options), fingerprint_(fingerprint_of(directory.string().size(), folders)) {
    for (ImagesOfFolder& folder : folders) {
      for (std::string& name : folder.names) files_.push_back({std::move(name), folders_.size()});
      folders_.push_back({std::move(folder.path), folder.label});
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    reader.open(str(folders_[file.folder].path, '/', file.name), options_.decoding,
                options_.max_image_pixels);
    if (options_.exif_transpose) reader.transpose_by_exif();
  }
  std::int64_t label(std::int64_t index) const override {
    return folders_[files_[static_cast<std::size_t>(index)].folder].label;
  }
  bool is_file(std::int64_t) const override { return !options_.exif_transpose; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct File {
    std::string name;
    std::size_t folder = 0;
  };
  struct Folder {
    std::string path;
    std::int64_t label = 0;
  };

  std::vector<File> files_;
  std::vector<Folder> folders_;
  ImageFolderOptions options_;
  std::uint64_t fingerprint_;
};

// ".jpg" for "a.JPG"; empty for a name that only begins with a dot.
std::string_view extension_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? std::string_view() : name.substr(dot);
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  const auto to_lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [&](char a, char b) { return to_lower(a) == b; });
}

template <class Extensions>
bool has_extension(std::string_view name, const Extensions& extensions) {
  const std::string_view extension = extension_of(name);
  return std::any_of(extensions.begin(), extensions.end(), [&](std::string_view wanted) {
    return equals_ignoring_case(extension, wanted);
  });
}

// Appends the images of `folder` and of all folders below it.
void collect(const std::string& folder, std::int64_t label, bool keep_unreadable,
             std::vector<ImagesOfFolder>& found) {
  DirectoryNames names = list_directory(folder);
  ImagesOfFolder images{folder, label, std::move(names.files)};
  std::erase_if(images.names, [&](const std::string& name) {
    if (!has_extension(name, kUnreadable)) return !has_extension(name, kReadable);
    if (keep_unreadable) return false;
    throw DataError(str(folder, '/', name, ": ", extension_of(name),
                        " files are not supported; convert it to PNG or JPEG, move it out of the "
                        "folder, or skip it with ImageFolderOptions::keep_unreadable"));
  });
  if (!images.names.empty()) found.push_back(std::move(images));
  for (const std::string& name : names.folders) {
    collect(str(folder, '/', name), label, keep_unreadable, found);
  }
}

void collect_files(const fs::path& folder, std::vector<fs::path>& found) {
  const DirectoryNames names = list_directory(folder);
  for (const std::string& name : names.files) {
    if (has_extension(name, kReadable) || has_extension(name, kUnreadable)) {
      found.push_back(folder / name);
    }
  }
  for (const std::string& name : names.folders) collect_files(folder / name, found);
}

constexpr const char* kNoImages = ": holds no .jpg, .jpeg, .jpe, .jfif or .png file";

// Sorted by the folders' paths, as torchvision sorts the result of os.walk().
std::vector<ImagesOfFolder> images_of_class(const std::string& folder, std::int64_t label,
                                            bool keep_unreadable) {
  std::vector<ImagesOfFolder> found;
  collect(folder, label, keep_unreadable, found);
  if (found.empty()) throw DataError(folder + kNoImages);
  std::sort(found.begin(), found.end(),
            [](const ImagesOfFolder& a, const ImagesOfFolder& b) { return a.path < b.path; });
  return found;
}

// Records of a run, such as run.json, tell classes apart by the text of their names.
void require_different_texts(const fs::path& directory, const std::vector<std::string>& classes) {
  std::set<std::string> texts;
  for (const std::string& name : classes) {
    const auto [text, is_new] = texts.insert(utf8_text(name));
    if (is_new) continue;
    throw DataError(str(directory.string(), ": two folders would both be recorded as '", *text,
                        "', because a byte that is not UTF-8 is written as \\x and two digits; "
                        "rename one of them"));
  }
}

}  // namespace

ImageDataset load_image_folder(const fs::path& directory, const ImageFolderOptions& options) {
  OptionCheck("load_image_folder")
      .in_range("max_image_pixels", static_cast<double>(options.max_image_pixels), 1,
                static_cast<double>(kMaxImagePixelsLimit));
  std::error_code ignored;  // list_directory() reports any other problem
  if (const auto type = fs::status(directory, ignored).type();
      type == fs::file_type::not_found || type == fs::file_type::regular) {
    throw DataError(str(directory.string(),
                        type == fs::file_type::regular ? " is not a folder" : " does not exist",
                        "; give a folder with a subfolder of images for each class"));
  }
  const std::vector<std::string> classes = list_directory(directory).folders;
  if (classes.empty()) {
    throw DataError(
        str(directory.string(),
            ": has no subfolders; each class needs a subfolder of images, such as cat/1.jpg"));
  }
  require_different_texts(directory, classes);
  std::vector<ImagesOfFolder> folders;
  for (const std::string& name : classes) {
    const std::int64_t label = &name - classes.data();
    for (ImagesOfFolder& folder :
         images_of_class((directory / name).string(), label, options.keep_unreadable)) {
      folders.push_back(std::move(folder));
    }
  }
  const fs::path shown = directory.filename().empty() ? directory.parent_path() : directory;
  return ImageDataset(str("images of ", shown.filename().string()), {3, 0, 0},
                      static_cast<std::int64_t>(classes.size()),
                      std::make_shared<const FolderSource>(directory, std::move(folders), options),
                      classes);
}

std::vector<fs::path> list_image_files(const fs::path& directory) {
  std::vector<fs::path> found;
  collect_files(directory, found);
  if (found.empty()) throw DataError(directory.string() + kNoImages);
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return found;
}

}  // namespace lockstep
