// Downloads files from the network. A file is verified before it appears under its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// No server answers: there is no network, no such host or no server, or a firewall is in between.
/// A caller that can do without the file catches only this error. Failures after an answer (a wrong
/// checksum, a full disk) must be reported to the user.
class LOCKSTEP_API NetworkError : public DataError {
 public:
  using DataError::DataError;
};

/// Called while a file arrives, with its name, the bytes received, and the total bytes (0 while
/// unknown). The two numbers are equal only in the last call, after the file has been verified and
/// put in its place. An exception from this function ends the download and reaches the download's
/// caller.
using DownloadProgress =
    std::function<void(const std::string& file, std::uint64_t done, std::uint64_t total)>;

struct LOCKSTEP_API RemoteFile {
  std::string url{};                ///< http or https
  std::string name{};               ///< the local name of the file
  std::string md5{};                ///< 32 hexadecimal digits, as the publisher states them
  std::uint64_t maximum_bytes = 0;  ///< a larger answer is rejected
};

/// Downloads `file` to `directory`/`file.name`. Throws a NetworkError that names the address if no
/// server answers within five seconds, to which the system's resolver may add its own timeout (ten
/// seconds by default if no name server answers). Throws a DataError if the transfer stalls for
/// twenty seconds, the server refuses, the answer is too large, its checksum is wrong, or the disk
/// is full. A failure leaves no file behind. The file appears under its name only when it is
/// complete and verified, so several processes may download it at once. The next download removes
/// the remains of a process that was killed.
///
/// Loads the module lockstep_download, which contains libcurl; throws a DataError if that fails.
LOCKSTEP_API void download_file(const RemoteFile& file, const std::filesystem::path& directory,
                                const DownloadProgress& progress);

/// Extracts the regular files with the given `names` (folders in the archive are ignored) from the
/// .tar.gz at `archive`, in one pass, and places each in `directory`, atomically. Throws a
/// DataError, and places no file, if one is missing or larger than `maximum_bytes`, or the archive
/// is damaged.
LOCKSTEP_API void unpack_files(const std::filesystem::path& archive,
                               const std::filesystem::path& directory,
                               const std::vector<std::string>& names, std::uint64_t maximum_bytes);

/// Downloads the .tar.gz `file`, places its `names` in `directory`, and keeps nothing else. As with
/// download_file(), several processes may do this at once.
LOCKSTEP_API void download_archive(const RemoteFile& file, const std::filesystem::path& directory,
                                   const std::vector<std::string>& names,
                                   std::uint64_t maximum_bytes, const DownloadProgress& progress);

}  // namespace lockstep
