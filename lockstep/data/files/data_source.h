// Where the files of a known data set are, and where they come from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/data/files/download.h>

namespace lockstep {

struct DataRequest {
  std::string name{};                      ///< of known_data_names()
  std::optional<std::string> directory{};  ///< --data: look here and nowhere else
  bool may_download = true;
  DownloadProgress progress{};  ///< may be empty
};

/// The data sets that can be found and downloaded: mnist, cifar10, cifar100.
const std::vector<std::string>& known_data_names();

/// The folder that holds the data set's files: `directory`, else $LOCKSTEP_DATA, else the user's
/// cache ($XDG_CACHE_HOME or ~/.cache)/lockstep/NAME. In the first two the files may lie in the
/// folder itself or in its subfolder NAME. Nothing when no place holds any of the files, and
/// `directory` is not given.
///
/// ConfigError for an unknown name, or a `directory` or $LOCKSTEP_DATA that is no folder.
/// DataError, naming the file, when `directory` or $LOCKSTEP_DATA holds only some of the files, or
/// `directory` none.
std::optional<std::filesystem::path> find_data(const DataRequest& request);

/// find_data(), and when that finds nothing and `may_download`, downloads the files into the cache:
/// from the public host, or from $LOCKSTEP_MIRROR (MIRROR/NAME/FILE).
/// DataError when that fails, as download_file() throws it: a NetworkError when nobody answers.
/// With several processes on a host, let one of them call this first: the others would download the
/// same again.
std::filesystem::path find_or_download_data(const DataRequest& request);

/// The folder of the user's cache for `name`. DataError when neither $XDG_CACHE_HOME nor $HOME is
/// set.
std::filesystem::path data_cache_directory(const std::string& name);

}  // namespace lockstep
