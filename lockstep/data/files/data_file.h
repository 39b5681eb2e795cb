// One file of a data set: mapped if it is plain, unpacked if only FILE.gz exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep::data {

/// The bytes of a file and their owner. Cheap to copy.
struct DataFile {
  std::string path{};  ///< The path that was read, for messages.
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> keep_alive{};
};

struct DataSize {
  std::string path{};  ///< The path that was requested, for messages.
  std::uint64_t bytes = 0;
};

/// Returns `directory`/`name`, or else `directory`/`name`.gz; nothing if neither exists.
std::optional<std::filesystem::path> find_data_file(const std::filesystem::path& directory,
                                                    const std::string& name);

/// Returns `directory`/`subfolder`, into which the publisher's archive unpacks, if that folder
/// exists and `name` is not in `directory` itself. Otherwise returns `directory`.
std::filesystem::path folder_with(const std::filesystem::path& directory, const char* subfolder,
                                  const std::string& name);

/// Reads the file that find_data_file() finds. Throws a DataError if there is no such file (the
/// message names it), it cannot be read, or its unpacked size exceeds `maximum_bytes`.
DataFile open_data_file(const std::filesystem::path& directory, const std::string& name,
                        std::size_t maximum_bytes);

/// The size of the unpacked content of the file that find_data_file() finds. For a .gz it is the
/// size that the file states; nothing is unpacked. Throws a DataError if there is no such file, it
/// cannot be read, or a .gz is not a gzip file.
DataSize data_file_size(const std::filesystem::path& directory, const std::string& name);

}  // namespace lockstep::data
