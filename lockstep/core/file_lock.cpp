#include <lockstep/core/file_lock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

// Returns 0, or the errno of the failure.
int try_to_lock(int fd) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// The first line of the file, which its holder wrote, made printable.
std::string holder_of(int fd) {
  std::array<char, 200> buffer{};
  const ssize_t count = pread(fd, buffer.data(), buffer.size(), 0);
  std::string holder;
  for (ssize_t i = 0; i < count && buffer[i] != '\n'; ++i) {
    if (buffer[i] < ' ' || buffer[i] > '~') break;
    holder += buffer[i];
  }
  return holder.empty() ? "another process" : holder;
}

// Other processes show this text in their error message. The lock works without it.
void write_holder(int fd) {
  const std::string text = str("process ", getpid(), " on ", host_name(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text.data(), text.size(), 0) < 0) {
    log_debug("cannot write into a lock file: ", errno_text(errno));
  }
}

// Another user's file often permits only reading, which suffices for a lock.
int open_lock(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  return fd < 0 && errno == EACCES ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::string& what)
    : fd_(open_lock(path.c_str())) {
  if (fd_ < 0) {
    throw ConfigError(str(what, " cannot be locked: ", path.string(), ": ", errno_text(errno)));
  }
  const int error = try_to_lock(fd_);
  if (error == EWOULDBLOCK) {
    const std::string holder = holder_of(fd_);
    close(std::exchange(fd_, -1));
    throw ConfigError(str(what, " is in use by ", holder));
  }
  if (error == 0) {
    write_holder(fd_);
  } else {
    log_warning(what, " cannot be locked (", errno_text(error),
                "): another process that uses it would go unnoticed");
  }
}

// Closes without unlocking, which would also release the lock of processes that inherited it.
FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace lockstep
