#include <lockstep/data/files/data_source.h>

#include <array>
#include <utility>
#include <vector>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/files/data_file.h>
#include <lockstep/formats/cifar.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// MD5 sums are those that the publishers state; sizes are upper bounds.
struct KnownDataset {
  const char* name;
  const char* host;                      // where the remote files are, with a slash
  const char* subfolder;                 // another place of the files within a folder; may be empty
  std::vector<std::string> files;        // without .gz
  std::vector<RemoteFile> remote;        // url: the file's name on the host
  bool archive;                          // remote is one .tar.gz that holds the files
  std::uint64_t maximum_unpacked_bytes;  // limit of a file in the archive
};

const std::array<KnownDataset, 3>& known_datasets() {
  static const std::array<KnownDataset, 3> table{{
      {"mnist",
       "https://ossci-datasets.s3.amazonaws.com/mnist/",
       "",
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte"},
       {{"", "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9'912'422},
        {"", "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28'881},
        {"", "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1'648'877},
        {"", "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4'542}},
       false,
       0},
      {"cifar10",
       "https://www.cs.toronto.edu/~kriz/",
       "cifar-10-batches-bin",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin", "test_batch.bin"},
       {{"", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 200'000'000}},
       true,
       10'000 * formats::kCifarRecordBytes},
      {"cifar100",
       "https://www.cs.toronto.edu/~kriz/",
       "cifar-100-binary",
       {"train.bin", "test.bin"},
       {{"", "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 200'000'000}},
       true,
       50'000 * formats::kCifar100RecordBytes},
  }};
  return table;
}

const KnownDataset& lookup(const std::string& name) {
  for (const KnownDataset& known : known_datasets()) {
    if (name == known.name) return known;
  }
  throw ConfigError(not_one_of("data set", name, known_data_names()));
}

// The files that `folder` does not hold.
std::vector<std::string> missing_files(const KnownDataset& known, const fs::path& folder) {
  std::vector<std::string> missing;
  for (const std::string& file : known.files) {
    if (!data::find_data_file(folder, file)) missing.push_back(file);
  }
  return missing;
}

// The first of `folders` that holds all files. If none does, throws a DataError for the first that
// holds some. That folder may belong to another project with files of the same name.
std::optional<fs::path> search(const KnownDataset& known, const std::vector<fs::path>& folders) {
  std::string partial;
  for (const fs::path& folder : folders) {
    const auto missing = missing_files(known, folder);
    if (missing.empty()) return folder;
    if (missing.size() < known.files.size() && partial.empty()) {
      partial = str(folder.string(), " holds only a part of ", known.name, ": ", missing.front(),
                    " (plain or .gz) is missing");
    }
  }
  if (!partial.empty()) throw DataError(partial);
  return std::nullopt;
}

std::vector<fs::path> places_in(const KnownDataset& known, const fs::path& folder) {
  std::vector<fs::path> places{folder, folder / known.name};
  if (*known.subfolder != '\0') {
    places.push_back(folder / known.subfolder);
    places.push_back(folder / known.name / known.subfolder);
  }
  return places;
}

std::string address(const KnownDataset& known, const std::string& file) {
  const auto mirror = environment_string("LOCKSTEP_MIRROR");
  if (!mirror) return known.host + file;
  return str(*mirror, mirror->back() == '/' ? "" : "/", known.name, "/", file);
}

void require_folder(const char* what, const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw ConfigError(str(what, " ", folder,
                          " does not exist or is not a folder; create it or name another one"));
  }
}

void download(const KnownDataset& known, const fs::path& cache, const DownloadProgress& progress) {
  for (RemoteFile file : known.remote) {
    file.url = address(known, file.name);
    std::error_code ignored;
    if (known.archive) {
      download_archive(file, cache, known.files, known.maximum_unpacked_bytes, progress);
    } else if (!fs::exists(cache / file.name, ignored)) {
      download_file(file, cache, progress);
    }
  }
}

}  // namespace

const std::vector<std::string>& known_data_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const KnownDataset& known : known_datasets()) all.emplace_back(known.name);
    return all;
  }();
  return names;
}

fs::path data_cache_directory(const std::string& name) {
  fs::path root;
  if (const auto cache = environment_string("XDG_CACHE_HOME")) {
    root = *cache;
  } else if (const auto home = environment_string("HOME")) {
    root = fs::path(*home) / ".cache";
  } else {
    throw DataError(
        "there is no place for downloaded data: set HOME, XDG_CACHE_HOME or LOCKSTEP_DATA");
  }
  return root / "lockstep" / name;
}

std::optional<fs::path> find_data(const DataRequest& request) {
  const KnownDataset& known = lookup(request.name);
  if (request.directory) {
    require_folder("the data folder", *request.directory);
    if (auto found = search(known, places_in(known, *request.directory))) return found;
    throw DataError(str("cannot find ", known.files.front(), " (or ", known.files.front(),
                        ".gz) in ", *request.directory, " or its subfolder ", known.name));
  }
  std::vector<fs::path> places;
  if (const auto folder = environment_string("LOCKSTEP_DATA")) {
    require_folder("LOCKSTEP_DATA", *folder);
    places = places_in(known, *folder);
  }
  if (auto found = search(known, places)) return found;
  if (!environment_string("XDG_CACHE_HOME") && !environment_string("HOME")) return std::nullopt;
  // In the cache, missing files are not an error: a download that was interrupted between two files
  // leaves some, and the next download fetches the others.
  const fs::path cache = data_cache_directory(request.name);
  if (missing_files(known, cache).empty()) return cache;
  return std::nullopt;
}

fs::path find_or_download_data(const DataRequest& request) {
  if (auto found = find_data(request)) return *found;
  const KnownDataset& known = lookup(request.name);
  const fs::path cache = data_cache_directory(request.name);
  if (!request.may_download) {
    throw DataError(str("cannot find the data set ", known.name, ": not in LOCKSTEP_DATA nor in ",
                        cache.string(), "; give its folder as DataRequest::directory"));
  }
  try {
    download(known, cache, request.progress);
  } catch (const DataError&) {
    // Another process may have completed the download meanwhile.
    if (!missing_files(known, cache).empty()) throw;
  }
  return cache;
}

}  // namespace lockstep
