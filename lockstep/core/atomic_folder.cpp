#include <lockstep/core/atomic_folder.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The prefix of temporary names: NAME follows it while a folder is being written. A second prefix
// stands in between for an old folder that is being removed or replaced.
constexpr std::string_view kUnfinished = ".tmp-";
constexpr std::string_view kRemoved = "removed-";
constexpr std::string_view kSetAside = "replaced-";

fs::path unfinished(const fs::path& path, std::string_view what = "") {
  return folder_of(path) /
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

// Gives the folder `fresh` the name of the folder `path`, and returns the new name of the old one.
fs::path change_places(const fs::path& fresh, const fs::path& path) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    return fresh;
  }
  // These errors mean a file system without an exchange; any other is a failure.
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    refuse_folder("write", path, errno_text(errno));
  }
  fs::path aside = unfinished(path, kSetAside);
  remove_tree(aside);
  if (rename(path.c_str(), aside.c_str()) != 0) refuse_folder("write", path, errno_text(errno));
  if (rename(fresh.c_str(), path.c_str()) == 0) return aside;
  const int failure = errno;
  // If this fails too, recover_folders() tries it again.
  static_cast<void>(rename(aside.c_str(), path.c_str()));
  refuse_folder("write", path, errno_text(failure));
}

// The original name of the folder that AtomicFolder or remove_folder() left as `left`; empty for
// other names.
std::string name_behind(const std::string& left) {
  if (!left.starts_with(kUnfinished)) return {};
  const std::string name = left.substr(kUnfinished.size());
  for (const std::string_view what : {kRemoved, kSetAside}) {
    if (name.starts_with(what)) return name.substr(what.size());
  }
  return name;
}

// What AtomicFolder and remove_folder() left in `parent`.
std::vector<fs::path> leftovers_in(const fs::path& parent,
                                   const std::function<bool(const std::string&)>& is_ours) {
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(parent, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (is_ours(name_behind(entry->path().filename().string()))) left.push_back(entry->path());
  }
  return left;
}

// The path from which commit() set the folder `left` in `parent` aside, if nothing has this path
// now; otherwise empty.
fs::path free_original_of(const fs::path& left, const fs::path& parent) {
  fs::path original = parent / name_behind(left.filename().string());
  std::error_code ignored;
  const bool is_aside = left == unfinished(original, kSetAside);
  const bool is_free = !fs::exists(fs::symlink_status(original, ignored));
  return is_aside && is_free ? original : fs::path();
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
  fs::path old;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) refuse_folder("write", path_, errno_text(errno));
    old = change_places(temporary_, path_);
  }
  temporary_.clear();
  flush_names(folder_of(path_));
  if (old.empty()) return;
  std::error_code error;
  fs::remove_all(old, error);
  if (error) log_warning("cannot remove ", old.string(), ": ", error.message());
}

void remove_folder(const fs::path& path) {
  const fs::path doomed = unfinished(path, kRemoved);
  remove_tree(doomed);
  if (rename(path.c_str(), doomed.c_str()) != 0) refuse_folder("remove", path, errno_text(errno));
  remove_tree(doomed);
}

void recover_folders(const fs::path& parent,
                     const std::function<bool(const std::string&)>& is_ours) {
  for (const fs::path& path : leftovers_in(parent, is_ours)) {
    const fs::path original = free_original_of(path, parent);
    std::error_code ignored;
    if (original.empty()) {
      fs::remove_all(path, ignored);
    } else {
      fs::rename(path, original, ignored);
    }
  }
}

bool has_folder_set_aside(const fs::path& parent,
                          const std::function<bool(const std::string&)>& is_ours) {
  return std::ranges::any_of(leftovers_in(parent, is_ours), [&](const fs::path& path) {
    return !free_original_of(path, parent).empty();
  });
}

// Some network file systems cannot flush a folder, and keep it consistent themselves.
void flush_names(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) refuse_folder("flush", folder, errno_text(errno));
  const int failure = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (failure != 0 && failure != EINVAL) refuse_folder("flush", folder, errno_text(failure));
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
  flush_names(folder_of(link));
}

}  // namespace lockstep
