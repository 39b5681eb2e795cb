// The border between the program and the module lockstep_download: plain C, so that no C++ type,
// exception or allocator crosses it.
//
// The module exists because libcurl, libarchive and libcrypto bring some forty shared libraries,
// which every start of the program would otherwise load.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// Returns 0 to go on, anything else to stop the transfer.
typedef int (*lockstep_progress_v1)(void* user, uint64_t done, uint64_t total);

/// Downloads `url` into `path`, which is created; checks the MD5 sum. Returns 0, or else 1, or 2
/// where nobody answered, with a text in `error` (of `error_size` bytes); then no file is left at
/// `path`.
typedef int (*lockstep_download_v2)(const char* url, const char* path, const char* md5,
                                    uint64_t maximum_bytes, lockstep_progress_v1 progress,
                                    void* user, char* error, size_t error_size);

/// Takes `count` regular files out of the .tar.gz `archive`: the one whose name without folders is
/// names[i] into paths[i]. Returns 0, or 1 as above; then some of the files may be left.
typedef int (*lockstep_unpack_v2)(const char* archive, size_t count, const char* const* names,
                                  const char* const* paths, uint64_t maximum_bytes, char* error,
                                  size_t error_size);
}

namespace lockstep {
inline constexpr const char* kDownloadModule = "lockstep_download.so";
inline constexpr const char* kDownloadSymbol = "lockstep_download_file_v2";
inline constexpr const char* kUnpackSymbol = "lockstep_unpack_files_v2";
inline constexpr int kNobodyAnswered = 2;
}  // namespace lockstep
