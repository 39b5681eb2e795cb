#include <lockstep/core/file.h>

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// Removes the files `prefix`PID-NUMBER of processes that no longer exist.
void remove_abandoned(const std::filesystem::path& prefix) {
  const std::string name_prefix = prefix.filename().string();
  std::error_code error;
  std::filesystem::directory_iterator entry(folder_of(prefix), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(name_prefix)) continue;
    const std::string rest = name.substr(name_prefix.size());
    pid_t process = 0;
    int length = 0;
    // Matches to the end, because a host's name may be the beginning of another's.
    if (std::sscanf(rest.c_str(), "%d-%*u%n", &process, &length) != 1 || process <= 0 ||
        static_cast<std::size_t>(length) != rest.size()) {
      continue;
    }
    if (kill(process, 0) != 0 && errno == ESRCH) unlink(entry->path().c_str());
  }
}

struct PlainFile {
  Descriptor descriptor;
  std::size_t size = 0;
};

// Does not wait for a pipe.
PlainFile open_plain_file(const std::filesystem::path& path) {
  PlainFile file{Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (file.descriptor.get() < 0) {
    throw DataError(str("cannot open ", path.string(), ": ", errno_text(errno)));
  }
  struct stat info{};
  if (fstat(file.descriptor.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw DataError(str("cannot read ", path.string(), ": not a plain file"));
  }
  file.size = static_cast<std::size_t>(info.st_size);
  return file;
}

}  // namespace

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), HOST_NAME_MAX);
  return name.data();
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  PlainFile file = open_plain_file(path);
  size_ = file.size;
  if (size_ == 0) return;
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor.get(), 0);
  if (address == MAP_FAILED) {
    throw DataError(str("cannot map ", path.string(), ": ", errno_text(errno)));
  }
  data_ = static_cast<const std::byte*>(address);
  descriptor_ = file.descriptor.release();
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  munmap(const_cast<std::byte*>(data_), size_);
  close(descriptor_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

bool MappedFile::is_whole() const {
  if (data_ == nullptr) return true;
  struct stat info{};
  return fstat(descriptor_, &info) == 0 && static_cast<std::size_t>(info.st_size) >= size_;
}

bool MappedFile::read_at(std::size_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += static_cast<std::size_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

void read_file(const std::filesystem::path& path, std::size_t maximum_bytes,
               std::vector<std::byte>& content) {
  const PlainFile file = open_plain_file(path);
  if (file.size > maximum_bytes) {
    throw DataError(str("cannot read ", path.string(), ": it has ", file.size,
                        " bytes, expected at most ", maximum_bytes));
  }
  content.resize(file.size);
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t count = read(file.descriptor.get(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw DataError(str("cannot read ", path.string(), ": ", errno_text(errno)));
    if (count == 0) break;  // truncated since it was opened
    done += static_cast<std::size_t>(count);
  }
  content.resize(done);
}

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  // Includes the host: in a shared folder, process numbers of other hosts are unknown here.
  const std::string prefix = str(path.string(), ".tmp-", host_name(), "-");
  remove_abandoned(prefix);
  std::filesystem::path name;
  std::error_code ignored;
  do {  // retries if a killed process had the same number
    name = str(prefix, getpid(), "-", counter++);
  } while (std::filesystem::exists(std::filesystem::symlink_status(name, ignored)));
  return name;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write_at(0, content);
  file.commit();
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
