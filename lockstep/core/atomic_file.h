// A file that is written piece by piece and seen only when it is whole.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

/// Written beside its place and renamed over it by commit(); without that, also when an exception
/// passes, nothing is left and what was in its place stays. For one thread at a time.
///
///   AtomicFile file("images.pack");
///   file.write_at(4096, data);
///   file.write_at(0, header);
///   file.commit();
class AtomicFile {
 public:
  /// DataError when no file can be created there. Removes what a killed process of this host left.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  ///< A forked child leaves the file to its parent.
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Pieces may come in any order; what none covers reads as zeros. DataError when the disk is full
  /// or fails.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// Flushes to the disk and gives the file its name. Nothing may be written after it. DataError
  /// when that fails.
  void commit();

 private:
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  const pid_t process_;
};

}  // namespace lockstep
