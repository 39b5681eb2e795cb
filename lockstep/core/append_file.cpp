#include <lockstep/core/append_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {

AppendFile::AppendFile(const std::filesystem::path& path, AppendMode mode) : path_(path) {
  const int exclusive = mode == AppendMode::kCreate ? O_EXCL : 0;
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0666);
  if (fd_ < 0) throw DataError(str("cannot write ", path.string(), ": ", errno_text(errno)));
  struct stat info{};
  if (fstat(fd_, &info) == 0) size_ = static_cast<std::uint64_t>(info.st_size);
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void AppendFile::append(std::string_view record) {
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      // Part of a record would make readers reject the file, or the records that follow.
      if (rest.size() < record.size() && ftruncate(fd_, static_cast<off_t>(size_)) != 0) {
        throw DataError(str("cannot write ", path_.string(), ": ", errno_text(reason),
                            "; it ends with a part of a record behind byte ", size_));
      }
      throw DataError(str("cannot write ", path_.string(), ": ", errno_text(reason)));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ += record.size();
}

}  // namespace lockstep
