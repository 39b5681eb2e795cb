// The pictures in a run's folder, small enough for a page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

struct RunPictureFile {
  std::string name{};  ///< of the file: "reconstructions.png"
  std::string png{};   ///< its content, or that of a smaller copy
  int width = 0;       ///< pixels of the file
  int height = 0;
  int divisor = 1;  ///< a side of `png` is that of the file over this
};

/// The PNG files of the folder by name, at most 4. Each is halved until it takes no more than its
/// equal part of `most_bytes`. Files that are damaged are left out.
std::vector<RunPictureFile> read_pictures(const std::filesystem::path& folder,
                                          std::size_t most_bytes = 480'000);

}  // namespace lockstep::html
