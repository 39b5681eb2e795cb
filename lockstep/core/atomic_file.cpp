#include <lockstep/core/atomic_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>

namespace lockstep {

// mkstemp is not used: it makes private files, and reading the umask for wider permissions would
// mean changing it for all threads.
AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(temporary_beside(path)), process_(getpid()) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty() && process_ == getpid()) unlink(temporary_.c_str());
}

void AtomicFile::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void AtomicFile::commit() {
  if (fsync(fd_) != 0 || close(std::exchange(fd_, -1)) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  temporary_.clear();
}

void AtomicFile::fail(int error_number) const {
  throw DataError(str("cannot write ", path_.string(), ": ", errno_text(error_number)));
}

}  // namespace lockstep
