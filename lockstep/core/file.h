// Reads, maps and writes whole files. Readers see the old content or the new, never a mixture.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A read-only memory map of a whole file. The file stays open and mapped as long as the object
/// lives. Movable. Thread-safe.
class MappedFile {
 public:
  /// Throws a DataError if the file is missing, not a regular file (it does not wait for a pipe),
  /// or cannot be mapped. For an empty file the span is empty.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// False if the file is now shorter than its map: touching a page beyond its end would end the
  /// process with SIGBUS. The file may still be truncated after this call.
  bool is_whole() const;

  /// Fills `to` with the bytes from `offset` on. Does not use the map, so it cannot cause a SIGBUS.
  /// Returns false if the file is too short or cannot be read.
  bool read_at(std::size_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Reads a whole file into `content`, reusing the vector's memory. For many small files, copying
/// costs less than mapping. Throws a DataError if the file is missing, not a regular file, larger
/// than `maximum_bytes`, or cannot be read.
void read_file(const std::filesystem::path& path, std::size_t maximum_bytes,
               std::vector<std::byte>& content);

/// The folder that contains `path`: "." if `path` is only a name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// The name of this host. It marks files in a folder that hosts share.
std::string host_name();

/// A temporary name beside `path`, PATH.tmp-HOST-PID-NUMBER, for a file that is renamed to `path`
/// when it is complete. No other thread, process or host uses it. First removes the temporary files
/// for `path` that killed processes of this host left behind. Does not throw.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// Writes `content` to a temporary file beside `path`, flushes it to the disk and renames it over
/// `path`. On any failure the temporary file is removed, the old content stays, and a DataError
/// states the reason (no space left, permission denied, ...).
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Creates `directory` (and its parents) and checks that files can be created in it. Otherwise
/// throws a ConfigError that states the reason.
void make_writable_directory(const std::filesystem::path& directory);

}  // namespace lockstep
