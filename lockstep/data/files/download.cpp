#include <lockstep/data/files/download.h>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>

#include <lockstep/core/credentials.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/module_file.h>
#include <lockstep/data/files/download_module.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDownloadErrorBytes = 1024;

struct Module {
  lockstep_download_v2 download = nullptr;
  lockstep_unpack_v2 unpack = nullptr;
};

Module load_module() {
  const std::string path = module_file(data::kDownloadModule);
  // The handle stays open for the life of the process: unloading libcurl is not safe.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw DataError(str("cannot download, because the downloader cannot be loaded (", dlerror(),
                        "): set LOCKSTEP_MODULE_DIR to its folder, or fetch the data by hand"));
  }
  const Module module{reinterpret_cast<lockstep_download_v2>(dlsym(handle, data::kDownloadSymbol)),
                      reinterpret_cast<lockstep_unpack_v2>(dlsym(handle, data::kUnpackSymbol))};
  if (module.download == nullptr || module.unpack == nullptr) {
    throw DataError(str("cannot use ", path, ": it belongs to another version of Lockstep"));
  }
  return module;
}

const Module& module() {
  static const Module loaded = load_module();  // a failure is retried at the next call
  return loaded;
}

// A file that is being downloaded for `path`; it is removed unless it was placed.
class Arrival {
 public:
  explicit Arrival(const fs::path& path) : path_(path), temporary_(temporary_beside(path)) {}
  ~Arrival() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  Arrival(Arrival&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}
  Arrival& operator=(Arrival&&) = delete;

  const fs::path& temporary() const { return temporary_; }
  std::uint64_t size() const {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(temporary_, error);
    return error ? 0 : bytes;
  }
  void place() {
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) throw DataError(str("cannot write ", path_.string(), ": ", error.message()));
    temporary_.clear();
  }

 private:
  fs::path path_;
  fs::path temporary_;
};

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

Arrival download(const RemoteFile& file, const fs::path& directory,
                 const DownloadProgress& progress) {
  const Module& loaded = module();
  create_folder(directory);
  Arrival arrival(directory / file.name);
  ProgressCall call{progress, file.name, nullptr};
  std::array<char, kDownloadErrorBytes> error{};
  const int status =
      loaded.download(file.url.c_str(), arrival.temporary().c_str(), file.md5.c_str(),
                      file.maximum_bytes, on_progress, &call, error.data(), error.size());
  if (status == 0) return arrival;
  if (call.error) std::rethrow_exception(call.error);
  // The address of a mirror or a proxy may hold a password.
  const std::string text = without_credentials(
      str("cannot download ", word_without_credentials(file.url), ": ", error.data()));
  if (status == data::kNobodyAnswered) {
    throw NetworkError(str(text,
                           "; put its files into a folder and name that (DataRequest::directory, "
                           "LOCKSTEP_DATA), or set LOCKSTEP_MIRROR"));
  }
  throw DataError(text);
}

}  // namespace

void download_file(const RemoteFile& file, const fs::path& directory,
                   const DownloadProgress& progress) {
  Arrival arrival = download(file, directory, progress);
  const std::uint64_t size = arrival.size();
  arrival.place();
  if (progress) progress(file.name, size, size);
}

void download_archive(const RemoteFile& file, const fs::path& directory,
                      const std::vector<std::string>& names, std::uint64_t maximum_bytes,
                      const DownloadProgress& progress) {
  const Arrival archive = download(file, directory, progress);
  unpack_files(archive.temporary(), directory, names, maximum_bytes);
  if (progress) progress(file.name, archive.size(), archive.size());
}

void unpack_files(const fs::path& archive, const fs::path& directory,
                  const std::vector<std::string>& names, std::uint64_t maximum_bytes) {
  const Module& loaded = module();
  create_folder(directory);
  std::vector<Arrival> arrivals;
  for (const std::string& name : names) arrivals.emplace_back(directory / name);
  std::vector<const char*> name_texts;
  for (const std::string& name : names) name_texts.push_back(name.c_str());
  std::vector<const char*> paths;
  for (const Arrival& arrival : arrivals) paths.push_back(arrival.temporary().c_str());
  std::array<char, kDownloadErrorBytes> error{};
  if (loaded.unpack(archive.c_str(), names.size(), name_texts.data(), paths.data(), maximum_bytes,
                    error.data(), error.size()) != 0) {
    throw DataError(str("cannot unpack ", archive.string(), ": ", error.data()));
  }
  for (Arrival& arrival : arrivals) arrival.place();
}

}  // namespace lockstep
