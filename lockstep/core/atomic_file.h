// A file that is written piece by piece and becomes visible only when it is complete.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

/// The file is written beside its path, and renamed over it by commit(). If commit() is not called,
/// for example after an exception, the new file is removed and the old file at the path stays. Not
/// thread-safe.
///
///   AtomicFile file("images.pack");
///   file.write_at(4096, data);
///   file.write_at(0, header);
///   file.commit();
class AtomicFile {
 public:
  /// Throws a DataError if the file cannot be created. Removes the remains of killed processes of
  /// this host.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  ///< A forked child leaves the file to its parent.
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Pieces may be written in any order; gaps read as zeros. Throws a DataError if the disk is full
  /// or fails.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// Flushes to the disk and gives the file its name. Nothing may be written afterwards. Throws a
  /// DataError on failure.
  void commit();

 private:
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  const pid_t process_;
};

}  // namespace lockstep
