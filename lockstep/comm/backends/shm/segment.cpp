#include <lockstep/comm/backends/shm/segment.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// Segments that this process created and whose descriptors are open, for ranks that are threads.
struct OwnSegments {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Segment>> by_descriptor;
};

OwnSegments& own_segments() {
  static OwnSegments instance;
  return instance;
}

std::byte* map_whole(int fd, std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    close(fd);
    throw CommError(str("shared memory: cannot map ", bytes, " bytes: ", errno_text(error)));
  }
  // The page faults of two ranks cost more than a reduction, so ask for huge pages, if the kernel
  // provides them for shared memory.
  madvise(address, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(address);
}

}  // namespace

std::shared_ptr<Segment> Segment::create(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  const int fd = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw CommError(str("shared memory: memfd_create failed: ", errno_text(errno)));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fchmod(fd, 0600) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    throw CommError(str("shared memory: cannot create ", bytes, " bytes: ", errno_text(error)));
  }
  std::shared_ptr<Segment> segment(new Segment(fd, map_whole(fd, bytes), bytes));
  const std::scoped_lock lock(own_segments().mutex);
  own_segments().by_descriptor[fd] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::open(const SegmentAddress& address) {
  if (address.pid == getpid()) {
    const std::scoped_lock lock(own_segments().mutex);
    const auto found = own_segments().by_descriptor.find(address.fd);
    if (found != own_segments().by_descriptor.end()) {
      if (auto segment = found->second.lock()) return segment;
    }
    throw CommError("shared memory: the segment of another thread is gone");
  }
  const std::string path = str("/proc/", address.pid, "/fd/", address.fd);
  // Check the file before opening it: on another host the path may lead to any file, for example a
  // terminal or a pipe, and opening it may have side effects.
  struct stat info{};
  const auto is_ours = [&] {
    return S_ISREG(info.st_mode) && info.st_nlink == 0 &&
           static_cast<std::size_t>(info.st_size) == address.bytes;
  };
  if (stat(path.c_str(), &info) != 0 || !is_ours()) {
    throw CommError(str("shared memory: ", path, " is not a segment of this job"));
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw CommError(str("shared memory: cannot open ", path, ": ", errno_text(errno)));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &info) != 0 || !is_ours() || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    close(fd);
    throw CommError(str("shared memory: ", path, " is not a segment of this job"));
  }
  std::byte* data = map_whole(fd, address.bytes);
  close(fd);
  return std::shared_ptr<Segment>(new Segment(-1, data, address.bytes));
}

Segment::~Segment() {
  close_descriptor();
  munmap(data_, bytes_);
}

SegmentAddress Segment::address() const { return {getpid(), fd_, bytes_}; }

void Segment::close_descriptor() {
  if (fd_ < 0) return;
  {
    const std::scoped_lock lock(own_segments().mutex);
    own_segments().by_descriptor.erase(fd_);
  }
  close(fd_);
  fd_ = -1;
}

}  // namespace lockstep::shm
