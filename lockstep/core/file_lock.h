// A lock on a file that ends with the processes that hold it.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// An exclusive lock, by flock(2), on a file that says who holds it. Children made by fork() hold
/// it too: it ends when the object is gone and the last process that inherited it has ended, in
/// whatever way. The file stays; what counts is the lock, not that the file exists. For one thread
/// at a time.
///
/// On NFS the server keeps the lock for all hosts (Linux, NFSv4 or a running lockd). Mounted with
/// `nolock` or `local_lock=flock`, hosts do not see each other's locks. Where a file system has no
/// locks at all, the object holds none and says so in the log.
class FileLock {
 public:
  /// Takes the lock without waiting; creates the file where need be. ConfigError, which begins with
  /// `what`, when another process holds it ("WHAT is in use by process 4711 on HOST"), and when the
  /// file cannot be opened.
  FileLock(const std::filesystem::path& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace lockstep
