// Files: read whole, map, write so that readers see the old content or the new, never half.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A read-only memory map of a whole file, which stays open. Movable; the mapping lives as long as
/// the object. Any thread may use it.
class MappedFile {
 public:
  /// DataError when the file is missing, not a plain file (a pipe is not waited for), or cannot be
  /// mapped. An empty file gives an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// False once the file is shorter than its map: to touch a page behind its end would end the
  /// process with SIGBUS. The file may still be cut short after this returns.
  bool is_whole() const;

  /// Copies bytes from `offset` on to `to` without the map, so that no SIGBUS can come of it. False
  /// when the file does not hold as many, or cannot be read.
  bool read_at(std::size_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Reads a whole file into `content`, whose memory is used again: for many small files, which cost
/// less to copy than to map. DataError when the file is missing, not a plain file, larger than
/// `maximum_bytes`, or cannot be read.
void read_file(const std::filesystem::path& path, std::size_t maximum_bytes,
               std::vector<std::byte>& content);

/// The name of this host, for what hosts that share a folder leave in it.
std::string host_name();

/// A name beside `path` for a file to be renamed to `path` when it is complete. No other thread,
/// process or host uses it: PATH.tmp-HOST-PID-NUMBER. Removes such files for `path` first that a
/// process of this host left behind because it was killed. Does not throw.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// Writes `content` to a temporary file beside `path`, flushes it to the disk and renames it over
/// `path`. On any failure the temporary file is removed, the old content stays, and DataError says
/// what failed (no space left, permission denied, ...).
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Creates `directory` (and its parents) and proves that files can be created in it. ConfigError
/// says why not.
void make_writable_directory(const std::filesystem::path& directory);

}  // namespace lockstep
