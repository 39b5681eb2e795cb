#include <lockstep/core/file_lock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

// is_locked() of another process holds a free lock for some microseconds.
constexpr Milliseconds kPatienceWithReaders{100};
constexpr Milliseconds kPauseBetweenAttempts{10};

// Returns 0, or the errno of the failure. `kind` is LOCK_EX or LOCK_SH.
int try_to_lock(int fd, int kind) {
  while (flock(fd, kind | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int lock_unless_held(int fd) {
  const Deadline deadline(kPatienceWithReaders);
  int error = try_to_lock(fd, LOCK_EX);
  while (error == EWOULDBLOCK && !deadline.expired()) {
    std::this_thread::sleep_for(kPauseBetweenAttempts);
    error = try_to_lock(fd, LOCK_EX);
  }
  return error;
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
  const int error = lock_unless_held(fd_);
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

std::optional<bool> is_locked(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const int error = try_to_lock(fd, LOCK_SH);
  close(fd);
  if (error == EWOULDBLOCK) return true;
  return error == 0 ? std::optional(false) : std::nullopt;
}

}  // namespace lockstep
