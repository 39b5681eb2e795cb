// The pictures in a run's folder, reduced to fit on a page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

struct RunPictureFile {
  std::string name{};  ///< name of the file: "reconstructions.png"
  std::string png{};   ///< its content, or that of a reduced copy
  int width = 0;       ///< pixels of the file
  int height = 0;
  int divisor = 1;  ///< factor by which the sides of `png` were reduced
};

/// The folder's PNG files by name, at most 4. Each is halved until it takes no more than its equal
/// share of `most_bytes`. Damaged files are skipped.
std::vector<RunPictureFile> read_pictures(const std::filesystem::path& folder,
                                          std::size_t most_bytes = 480'000);

}  // namespace lockstep::html
