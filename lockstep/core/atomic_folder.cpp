#include <lockstep/core/atomic_folder.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".tmp-";

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path unfinished(const fs::path& path, std::string_view what = "") {
  return parent_of(path) /
         (std::string(kUnfinished) + std::string(what) + path.filename().string());
}

[[noreturn]] void refuse_folder(const char* what, const fs::path& path, const std::string& reason) {
  throw DataError(str("cannot ", what, ' ', path.string(), ": ", reason));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) refuse_folder("remove", path, error.message());
}

// Writes the folder's list of names to the disk. Some network file systems cannot, and keep it in
// order themselves.
void flush_names(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) refuse_folder("flush", folder, errno_text(errno));
  const int failure = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (failure != 0 && failure != EINVAL) refuse_folder("flush", folder, errno_text(failure));
}

// False where the file system cannot let two names change places.
bool swap_names(const fs::path& one, const fs::path& other) {
  return renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& path)
    : path_(path), temporary_(unfinished(path)), process_(getpid()) {
  remove_tree(temporary_);
  std::error_code error;
  fs::create_directory(temporary_, error);
  if (error) refuse_folder("make the folder", temporary_, error.message());
}

AtomicFolder::~AtomicFolder() {
  if (temporary_.empty() || process_ != getpid()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void AtomicFolder::write(const std::string& name, const BytePieces& pieces) const {
  AtomicFile file(temporary_ / name);
  std::uint64_t offset = 0;
  for (const auto& piece : pieces) {
    file.write_at(offset, {reinterpret_cast<const char*>(piece.data()), piece.size()});
    offset += piece.size();
  }
  file.commit();
}

void AtomicFolder::commit() {
  flush_names(temporary_);
  bool replaced = false;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) refuse_folder("write", path_, errno_text(errno));
    replaced = swap_names(temporary_, path_);
    if (!replaced) {
      remove_folder(path_);
      if (rename(temporary_.c_str(), path_.c_str()) != 0) {
        refuse_folder("write", path_, errno_text(errno));
      }
    }
  }
  const fs::path old = std::exchange(temporary_, fs::path());
  flush_names(parent_of(path_));
  if (replaced) remove_tree(old);
}

void remove_folder(const fs::path& path) {
  const fs::path doomed = unfinished(path, "removed-");
  remove_tree(doomed);
  if (rename(path.c_str(), doomed.c_str()) != 0) refuse_folder("remove", path, errno_text(errno));
  remove_tree(doomed);
}

void remove_unfinished_folders(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(parent, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kUnfinished)) left.push_back(entry->path());
  }
  std::error_code ignored;
  for (const fs::path& path : left) fs::remove_all(path, ignored);
}

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path temporary = temporary_beside(link);
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    refuse_folder("make the link", link, errno_text(errno));
  }
  if (rename(temporary.c_str(), link.c_str()) != 0) {
    const int failure = errno;
    unlink(temporary.c_str());
    refuse_folder("make the link", link, errno_text(failure));
  }
  flush_names(parent_of(link));
}

}  // namespace lockstep
