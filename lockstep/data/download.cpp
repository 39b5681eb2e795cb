#include <lockstep/data/download.h>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <exception>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/data/download_module.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kErrorBytes = 1024;

struct Module {
  lockstep_download_v1 download = nullptr;
  lockstep_unpack_v1 unpack = nullptr;
};

// Beside the program (a build tree), in the library folder next to it (an installation), where the
// installation that this library came from has it (a user's program).
std::vector<fs::path> module_folders() {
  std::vector<fs::path> folders;
  if (const auto named = environment_string("LOCKSTEP_MODULE_DIR")) folders.emplace_back(*named);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(program.parent_path());
    folders.push_back(program.parent_path().parent_path() / "lib" / "lockstep");
  }
  folders.emplace_back(LOCKSTEP_INSTALLED_MODULE_DIR);
  return folders;
}

Module load_module() {
  std::vector<std::string> tried;
  for (const fs::path& folder : module_folders()) {
    const fs::path path = folder / kDownloadModule;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      tried.push_back(folder.string());
      continue;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw DataError(str("cannot load the downloader: ", dlerror()));
    // The handle stays open for the life of the process: libcurl does not like to be unloaded.
    const Module module{reinterpret_cast<lockstep_download_v1>(dlsym(handle, kDownloadSymbol)),
                        reinterpret_cast<lockstep_unpack_v1>(dlsym(handle, kUnpackSymbol))};
    if (module.download == nullptr || module.unpack == nullptr) {
      throw DataError(
          str("cannot use ", path.string(), ": it belongs to another version of Lockstep"));
    }
    return module;
  }
  throw DataError(str("cannot download: there is no ", kDownloadModule, " in ", join(tried),
                      "; set LOCKSTEP_MODULE_DIR to its folder, or fetch the data by hand"));
}

const Module& module() {
  static const Module loaded = load_module();  // a failure is tried anew at the next call
  return loaded;
}

// A name that no other thread or process writes to.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<int> counter{0};
  return path.string() + str(".part-", getpid(), "-", counter++);
}

struct ProgressCall {
  const DownloadProgress& progress;
  const std::string& name;
  std::exception_ptr error;
};

int on_progress(void* user, std::uint64_t done, std::uint64_t total) {
  auto& call = *static_cast<ProgressCall*>(user);
  try {
    if (call.progress && (done < total || total == 0)) call.progress(call.name, done, total);
    return 0;
  } catch (...) {
    call.error = std::current_exception();
    return 1;
  }
}

void create_folder(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw DataError(str("cannot create the folder ", directory.string(), ": ", error.message()));
  }
}

void place(const fs::path& temporary, const fs::path& path) {
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) {
    unlink(temporary.c_str());
    throw DataError(str("cannot write ", path.string(), ": ", error.message()));
  }
}

}  // namespace

void download_file(const RemoteFile& file, const fs::path& directory,
                   const DownloadProgress& progress) {
  const Module& loaded = module();
  create_folder(directory);
  const fs::path path = directory / file.name;
  const fs::path temporary = temporary_name(path);
  ProgressCall call{progress, file.name, nullptr};
  std::array<char, kErrorBytes> error{};
  if (loaded.download(file.url.c_str(), temporary.c_str(), file.md5.c_str(), file.maximum_bytes,
                      on_progress, &call, error.data(), error.size()) != 0) {
    if (call.error) std::rethrow_exception(call.error);
    throw DataError(str("cannot download ", file.url, ": ", error.data()));
  }
  place(temporary, path);
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(path, ignored);
  if (progress && !ignored) progress(file.name, size, size);
}

void unpack_files(const fs::path& archive, const fs::path& directory,
                  const std::vector<std::string>& names, std::uint64_t maximum_bytes) {
  const Module& loaded = module();
  create_folder(directory);
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    const fs::path temporary = temporary_name(path);
    std::array<char, kErrorBytes> error{};
    if (loaded.unpack(archive.c_str(), name.c_str(), temporary.c_str(), maximum_bytes, error.data(),
                      error.size()) != 0) {
      throw DataError(str("cannot unpack ", archive.string(), ": ", error.data()));
    }
    place(temporary, path);
  }
}

}  // namespace lockstep
