#include <lockstep/core/file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// Closes on scope exit; release() hands the descriptor over.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw DataError(errno_text(errno));
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A new file beside `path`, under a name that nobody uses. Not mkstemp: that makes private files, and
// to learn the umask that others should follow one must change it for all threads.
int create_beside(const std::filesystem::path& path, std::string& temporary) {
  static std::atomic<unsigned> counter{0};
  constexpr int kTries = 100;  // names that a killed process of our number left behind
  for (int i = 0; i < kTries; ++i) {
    temporary = str(path.string(), ".tmp-", getpid(), "-", counter++);
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  throw DataError(str("cannot write ", path.string(), ": ", errno_text(errno)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw DataError(str("cannot open ", path.string(), ": ", errno_text(errno)));
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw DataError(str("cannot read ", path.string(), ": not a plain file"));
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    throw DataError(str("cannot map ", path.string(), ": ", errno_text(errno)));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::string temporary;
  Descriptor file(create_beside(path, temporary));
  try {
    write_all(file.get(), content);
    if (fsync(file.get()) != 0 || close(file.release()) != 0 ||
        rename(temporary.c_str(), path.c_str()) != 0) {
      throw DataError(errno_text(errno));
    }
  } catch (const DataError& error) {
    unlink(temporary.c_str());
    throw DataError(str("cannot write ", path.string(), ": ", error.what()));
  }
}

void make_writable_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw ConfigError(str("cannot create the folder ", directory.string(), ": ", error.message()));
  }
  std::string probe = (directory / ".lockstep-probe-XXXXXX").string();
  const Descriptor file(mkstemp(probe.data()));
  if (file.get() < 0) {
    throw ConfigError(str("cannot write into ", directory.string(), ": ", errno_text(errno)));
  }
  unlink(probe.c_str());
}

}  // namespace lockstep
