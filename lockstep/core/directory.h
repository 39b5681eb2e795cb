// What lies in a folder, with as few system calls as the file system allows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The names in a folder, each list in the order of its bytes, without "." and "..".
struct DirectoryNames {
  std::vector<std::string> folders{};  ///< also links to folders
  std::vector<std::string> files{};    ///< everything else, also links that lead nowhere
};

/// Reads the folder `directory`. What a name stands for comes with the name on most file systems;
/// only links, and names on other file systems, are asked about one by one. DataError, naming the
/// folder or the link, when it cannot be read.
DirectoryNames list_directory(const std::filesystem::path& directory);

}  // namespace lockstep
