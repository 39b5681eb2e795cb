// Lists a folder, with as few system calls as the file system allows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The names in a folder without "." and "..", each list in byte order.
struct DirectoryNames {
  std::vector<std::string> folders{};  ///< including links to folders
  std::vector<std::string> files{};    ///< everything else, including dangling links
};

/// Reads the folder `directory`. Most file systems report the type together with the name; only
/// links, and names on other file systems, need a call each. Throws a DataError that names the
/// folder or the link if it cannot be read.
DirectoryNames list_directory(const std::filesystem::path& directory);

}  // namespace lockstep
