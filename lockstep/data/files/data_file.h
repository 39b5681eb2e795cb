// One file of a data set: mapped where it is plain, unpacked where only FILE.gz is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// The bytes of a file and what owns them. A cheap copy.
struct DataFile {
  std::string path{};  ///< What was read, for messages.
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> keep_alive{};
};

struct DataSize {
  std::string path{};  ///< What was asked, for messages.
  std::uint64_t bytes = 0;
};

/// `directory`/`name`, or else `directory`/`name`.gz; nothing when neither is there.
std::optional<std::filesystem::path> find_data_file(const std::filesystem::path& directory,
                                                    const std::string& name);

/// `directory`, or its `subfolder`, in which the publisher's archive has the files, when only that
/// is there and `name` is not in `directory` itself.
std::filesystem::path folder_with(const std::filesystem::path& directory, const char* subfolder,
                                  const std::string& name);

/// Reads what find_data_file() finds. DataError when it finds nothing (the message names the file),
/// the file cannot be read, or its unpacked size exceeds `maximum_bytes`.
DataFile open_data_file(const std::filesystem::path& directory, const std::string& name,
                        std::size_t maximum_bytes);

/// The size of the content of what find_data_file() finds, as a .gz states it itself: nothing is
/// unpacked. DataError when there is no such file, it cannot be read or is no gzip.
DataSize data_file_size(const std::filesystem::path& directory, const std::string& name);

}  // namespace lockstep
