#include <lockstep/train/checkpoint_folder.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/checksum.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::size_t kStepDigits = 8;
// Far more than a manifest has, whatever the task measures.
constexpr std::size_t kMaximumManifestBytes = 16 << 20;

bool is_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return false;
  const std::string digits = name.substr(kStepPrefix.size());
  return digits.size() >= kStepDigits &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::uint64_t checksum_of_file(const MappedFile& file, const fs::path& path) {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  Checksum sum;
  // Not through the map: a file that is cut short meanwhile would end the process.
  for (std::size_t at = 0; at < file.bytes().size();) {
    const std::span<std::byte> part(piece.data(), std::min(piece.size(), file.bytes().size() - at));
    if (!file.read_at(at, part)) {
      throw CheckpointError(str(path.string(), " cannot be read at byte ", at));
    }
    sum.add(part);
    at += part.size();
  }
  return sum.value();
}

void verify_file(const fs::path& path, const ManifestFile& expected) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw CheckpointError(str(path.string(), " is missing; the manifest expects a file of ",
                              expected.bytes, " bytes"));
  }
  const MappedFile file(path);
  if (file.bytes().size() != expected.bytes) {
    throw CheckpointError(str(path.string(), " is damaged: it has ", file.bytes().size(),
                              " bytes, expected ", expected.bytes));
  }
  const std::uint64_t found = checksum_of_file(file, path);
  if (found == expected.checksum) return;
  throw CheckpointError(str(path.string(), " is damaged: its checksum is ", checksum_digits(found),
                            ", expected ", checksum_digits(expected.checksum)));
}

// Checkpoints whose place in the order is not known come before those whose is: what may be the
// newest one is looked at, and named, before one is taken that may be older.
constexpr std::int64_t kNewerThanAll = std::numeric_limits<std::int64_t>::max() - 1;
constexpr std::int64_t kFirstOfAll = std::numeric_limits<std::int64_t>::max();

std::int64_t order_of(const fs::path& folder, const std::string& latest) {
  if (folder.filename() == latest) return kFirstOfAll;
  try {
    return read_manifest(folder).sequence;
  } catch (const Error&) {
    return kNewerThanAll;
  }
}

// In the order in which they are to be tried.
std::vector<fs::path> candidates_in(const fs::path& directory) {
  std::error_code error;
  const std::string latest = fs::read_symlink(directory / kLatestLink, error).string();
  std::vector<std::pair<std::int64_t, fs::path>> ordered;
  for (const fs::path& folder : checkpoint_folders(directory)) {
    ordered.emplace_back(order_of(folder, latest), folder);
  }
  std::sort(ordered.begin(), ordered.end(), std::greater<>());
  std::vector<fs::path> candidates;
  for (auto& [order, folder] : ordered) candidates.push_back(std::move(folder));
  return candidates;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof(text), "step-%08lld", static_cast<long long>(step));
  return text;
}

std::vector<fs::path> checkpoint_folders(const fs::path& directory) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (is_checkpoint_name(entry->path().filename().string()) && entry->is_directory(ignored)) {
      folders.push_back(entry->path());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw DataError(str("cannot read ", directory.string(), ": ", error.message()));
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  return is_checkpoint_name(fs::weakly_canonical(path, error).filename().string()) ||
         fs::exists(path / kManifestFile, error);
}

CheckpointManifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  std::error_code error;
  if (!fs::exists(path, error)) throw CheckpointError(path.string() + " is missing");
  std::vector<std::byte> bytes;
  read_file(path, kMaximumManifestBytes, bytes);
  return parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

CheckpointManifest verify_checkpoint(const fs::path& folder) {
  CheckpointManifest manifest = read_manifest(folder);
  for (const char* name : {kModelFile, kTrainingFile}) {
    if (manifest.files.contains(name)) continue;
    throw CheckpointError(str((folder / kManifestFile).string(), " does not list ", name));
  }
  for (const auto& [name, file] : manifest.files) verify_file(folder / name, file);
  return manifest;
}

FoundCheckpoint find_checkpoint(const fs::path& directory) {
  FoundCheckpoint found;
  std::string reason;
  for (const fs::path& folder : candidates_in(directory)) {
    if (!reason.empty()) log_warning(reason, "; the checkpoint before it is tried");
    try {
      found.manifest = verify_checkpoint(folder);
      found.folder = folder;
      return found;
    } catch (const Error& error) {  // also one that cannot be opened
      reason = error.what();
      found.damaged.push_back(folder);
    }
  }
  if (reason.empty()) return found;
  throw CheckpointError(str(reason, "; ", directory.string(), " holds no other checkpoint",
                            found.damaged.size() > 1 ? " that is whole" : ""));
}

}  // namespace lockstep
