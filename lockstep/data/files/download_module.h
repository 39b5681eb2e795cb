// The border between the program and the module lockstep_download: plain C, so that no C++ type,
// exception or allocator crosses it.
//
// The module exists because libcurl, libarchive and libcrypto depend on about forty shared
// libraries, which every start of the program would otherwise load.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// Returns 0 to continue, and any other value to stop the transfer.
typedef int (*lockstep_progress_v1)(void* user, uint64_t done, uint64_t total);

/// Downloads `url` into `path`, which is created, and verifies the MD5 sum. Returns 0 on success, 2
/// if no server answered, and 1 on any other failure. A failure writes a message to `error` (of
/// `error_size` bytes) and leaves no file at `path`.
typedef int (*lockstep_download_v2)(const char* url, const char* path, const char* md5,
                                    uint64_t maximum_bytes, lockstep_progress_v1 progress,
                                    void* user, char* error, size_t error_size);

/// Extracts `count` regular files from the .tar.gz `archive`: the file whose name without folders
/// is names[i] goes to paths[i]. Returns 0 on success. A failure returns 1, writes a message as
/// above, and may leave some of the files.
typedef int (*lockstep_unpack_v2)(const char* archive, size_t count, const char* const* names,
                                  const char* const* paths, uint64_t maximum_bytes, char* error,
                                  size_t error_size);
}

namespace lockstep::data {
inline constexpr const char* kDownloadModule = "lockstep_download.so";
inline constexpr const char* kDownloadSymbol = "lockstep_download_file_v2";
inline constexpr const char* kUnpackSymbol = "lockstep_unpack_files_v2";
inline constexpr int kNobodyAnswered = 2;
}  // namespace lockstep::data
