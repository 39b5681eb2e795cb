// A file that grows record by record and can be read up to the last of them, whatever happens to
// the process that writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

enum class AppendMode {
  kCreate,    ///< the file must not exist yet
  kContinue,  ///< an existing file grows on; a missing one is created
};

/// Holds no buffer: a record belongs to the system when append() returns, and a process that is
/// killed later loses nothing of it. A call costs about a microsecond on a local disk. For one
/// thread at a time, and one object for each file: a second writer would tear records apart.
///
///   AppendFile file("metrics.jsonl", AppendMode::kCreate);
///   file.append("{\"loss\":0.25}\n");
class AppendFile {
 public:
  /// DataError when the file cannot be opened, or exists although it should be created.
  AppendFile(const std::filesystem::path& path, AppendMode mode);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  /// Writes `record` behind all others. DataError when the disk is full or fails; the file then
  /// ends with the record before, where it can be cut.
  void append(std::string_view record);

  std::uint64_t size() const { return size_; }  ///< bytes
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
