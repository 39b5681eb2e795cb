// A file that grows record by record. If the writing process dies, the file is readable up to its
// last complete record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

enum class AppendMode {
  kCreate,    ///< the file must not exist yet
  kContinue,  ///< an existing file is continued; a missing one is created
};

/// Has no buffer: when append() returns, the kernel has the record, which therefore survives if the
/// process is killed later. A call costs about a microsecond on a local disk. Not thread-safe. Use
/// one object per file: a second writer would tear records apart.
///
///   AppendFile file("metrics.jsonl", AppendMode::kCreate);
///   file.append("{\"loss\":0.25}\n");
class AppendFile {
 public:
  /// Throws a DataError if the file cannot be opened, or if the mode is kCreate and the file
  /// exists.
  AppendFile(const std::filesystem::path& path, AppendMode mode);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  /// Appends `record`. Throws a DataError if the disk is full or fails; the file is then truncated
  /// to the previous record if possible.
  void append(std::string_view record);

  std::uint64_t size() const { return size_; }  ///< bytes
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
