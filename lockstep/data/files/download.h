// Files from the network: verified, and placed only when they are whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep {

/// Nobody answers: no network, no such host, no server, or a wall between. Whoever can do without
/// the file catches this alone: what an answer makes fail (its checksum, the disk) is the user's to
/// know.
class NetworkError : public DataError {
 public:
  using DataError::DataError;
};

/// Called while a file arrives: its name, the bytes so far, and the bytes in all (0 while unknown).
/// The two are equal in one last call, once the file is verified and in its place, and never
/// before. An exception thrown here ends the download and reaches its caller.
using DownloadProgress =
    std::function<void(const std::string& file, std::uint64_t done, std::uint64_t total)>;

struct RemoteFile {
  std::string url{};                ///< http or https
  std::string name{};               ///< the file's name here
  std::string md5{};                ///< 32 hexadecimal digits, as the publisher states them
  std::uint64_t maximum_bytes = 0;  ///< a larger answer is refused
};

/// Downloads `file` to `directory`/`file.name`. NetworkError, naming the address, when nobody
/// answers within five seconds, to which the system's resolver may add its own (ten by default
/// where no name server answers); DataError when the transfer stalls for twenty, the server
/// refuses, the answer is too large, its checksum is another one, or the disk is full. Then nothing
/// is left behind. The file appears under its name only when it is complete and right, so that
/// several processes may do this at once; what one that was killed left, the next removes.
///
/// Loads the module lockstep_download, which brings libcurl; DataError where there is none.
void download_file(const RemoteFile& file, const std::filesystem::path& directory,
                   const DownloadProgress& progress);

/// Takes the regular files called `names` (without folders) out of the .tar.gz at `archive`, in one
/// pass, and places each in `directory`, atomically. DataError when one is missing, larger than
/// `maximum_bytes`, or the archive is damaged; then none is placed.
void unpack_files(const std::filesystem::path& archive, const std::filesystem::path& directory,
                  const std::vector<std::string>& names, std::uint64_t maximum_bytes);

/// Both: downloads the .tar.gz `file`, places its `names` in `directory`, and keeps nothing else.
/// As download_file(), several processes may do this at once.
void download_archive(const RemoteFile& file, const std::filesystem::path& directory,
                      const std::vector<std::string>& names, std::uint64_t maximum_bytes,
                      const DownloadProgress& progress);

}  // namespace lockstep
