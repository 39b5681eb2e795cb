// The location of the files of a known data set, and the addresses to download them from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/files/download.h>

namespace lockstep {

struct LOCKSTEP_API DataRequest {
  std::string name{};                      ///< one of known_data_names()
  std::optional<std::string> directory{};  ///< if set, the only place to look
  bool may_download = true;
  DownloadProgress progress{};  ///< may be empty
};

/// The data sets that can be found and downloaded, such as mnist.
LOCKSTEP_API const std::vector<std::string>& known_data_names();

/// The folder that holds the data set's files: `directory`, else $LOCKSTEP_DATA, else the user's
/// cache ($XDG_CACHE_HOME or ~/.cache)/lockstep/NAME. In the first two the files may lie in the
/// folder itself or in its subfolder NAME, and those of CIFAR also in their archive's folder below
/// either. Returns nothing if `directory` is not given, $LOCKSTEP_DATA holds none of the files, and
/// the cache does not hold all of them.
///
/// Throws a ConfigError for an unknown name, or if `directory` or $LOCKSTEP_DATA is not a folder.
/// Throws a DataError that names the file if `directory` or $LOCKSTEP_DATA holds only some of the
/// files, or `directory` holds none.
LOCKSTEP_API std::optional<std::filesystem::path> find_data(const DataRequest& request);

/// Calls find_data(). If that finds nothing, downloads the files into the cache: from the public
/// host, or from $LOCKSTEP_MIRROR (MIRROR/NAME/FILE). Throws a DataError if `may_download` is not
/// set. If the download fails, throws as download_file() does: a NetworkError if no server answers.
/// With several processes on a host, let one of them call this first; otherwise each would download
/// the same files.
LOCKSTEP_API std::filesystem::path find_or_download_data(const DataRequest& request);

/// The folder for `name` in the user's cache. Throws a DataError if neither $XDG_CACHE_HOME nor
/// $HOME is set.
LOCKSTEP_API std::filesystem::path data_cache_directory(const std::string& name);

}  // namespace lockstep
