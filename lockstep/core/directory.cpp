#include <lockstep/core/directory.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

[[noreturn]] void refuse(const std::filesystem::path& path, int error_number) {
  throw DataError(str("cannot read ", path.string(), ": ", errno_text(error_number)));
}

// Follows links. A dangling link is not a folder; a link that cannot be followed for another reason
// might be one.
bool is_folder(DIR* directory, const dirent& entry, const std::filesystem::path& parent) {
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat info{};
  if (fstatat(dirfd(directory), entry.d_name, &info, 0) == 0) return S_ISDIR(info.st_mode);
  if (errno != ENOENT && errno != ENOTDIR) refuse(parent / entry.d_name, errno);
  return false;
}

}  // namespace

DirectoryNames list_directory(const std::filesystem::path& directory) {
  const std::unique_ptr<DIR, CloseDirectory> stream(opendir(directory.c_str()));
  if (!stream) refuse(directory, errno);
  DirectoryNames names;
  for (;;) {
    errno = 0;  // only errno distinguishes the end from a failure
    const dirent* const entry = readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    (is_folder(stream.get(), *entry, directory) ? names.folders : names.files).emplace_back(name);
  }
  if (errno != 0) refuse(directory, errno);
  std::sort(names.folders.begin(), names.folders.end());
  std::sort(names.files.begin(), names.files.end());
  return names;
}

}  // namespace lockstep
