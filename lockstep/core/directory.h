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

/// Reads the folder `directory`. Most file systems report each type together with the name. Only
/// links, and all names on other file systems, need a system call each. Throws a DataError that
/// names the folder or link that cannot be read.
DirectoryNames list_directory(const std::filesystem::path& directory);

}  // namespace lockstep
