#include <lockstep/train/checkpoints/checkpoint_folder.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <lockstep/core/atomic_folder.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/checksum.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::size_t kStepDigits = 8;
constexpr std::string_view kVersionPrefix = "-v";
// Far above the size of a manifest, whatever the task measures.
constexpr std::size_t kMaximumManifestBytes = 16 << 20;

bool has_only_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Whether `path` exists. DataError if that cannot be determined.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) {
    throw DataError(str("cannot read ", path.string(), ": ", error.message()));
  }
  return type != fs::file_type::not_found;
}

std::uint64_t checksum_of_file(const MappedFile& file, const fs::path& path) {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  formats::Checksum sum;
  // Does not read through the map: if the file were truncated meanwhile, the process would be
  // killed.
  for (std::size_t at = 0; at < file.bytes().size();) {
    const std::span<std::byte> part(piece.data(), std::min(piece.size(), file.bytes().size() - at));
    if (!file.read_at(at, part)) {
      if (file.is_whole()) throw DataError(str("cannot read ", path.string(), " at byte ", at));
      throw CheckpointError(
          str(path.string(), " is damaged: it was cut short at byte ", at, " or before"));
    }
    sum.add(part);
    at += part.size();
  }
  return sum.value();
}

void verify_file(const fs::path& path, const formats::ManifestFile& expected) {
  if (!is_there(path)) {
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
  throw CheckpointError(str(path.string(), " is damaged: its checksum is ",
                            formats::checksum_digits(found), ", expected ",
                            formats::checksum_digits(expected.checksum)));
}

// A checkpoint of unknown position sorts before the others: one that may be the newest is examined,
// and reported, before a possibly older one is used.
constexpr std::int64_t kNewerThanAll = std::numeric_limits<std::int64_t>::max() - 1;
constexpr std::int64_t kFirstOfAll = std::numeric_limits<std::int64_t>::max();

std::int64_t order_of(const fs::path& folder, const fs::path& latest) {
  if (folder == latest) return kFirstOfAll;
  try {
    return read_manifest(folder).sequence;
  } catch (const Error&) {
    return kNewerThanAll;
  }
}

// The one of `folders` that `link` leads to, by any path; empty if it is not a link.
fs::path target_of(const fs::path& link, const std::vector<fs::path>& folders) {
  std::error_code error;
  if (folders.empty() || !fs::is_symlink(link, error)) return {};
  for (const fs::path& folder : folders) {
    if (fs::equivalent(link, folder, error)) return folder;
  }
  log_warning(link.string(), " leads to ", fs::read_symlink(link, error).string(),
              ", which is not a checkpoint in this folder; the newest one is taken");
  return {};
}

// In the order in which to try them.
std::vector<fs::path> in_order(const fs::path& directory, const std::vector<fs::path>& folders) {
  const fs::path latest = target_of(directory / kLatestLink, folders);
  std::vector<std::pair<std::int64_t, fs::path>> ordered;
  for (const fs::path& folder : folders) ordered.emplace_back(order_of(folder, latest), folder);
  std::sort(ordered.begin(), ordered.end(), std::greater<>());
  std::vector<fs::path> candidates;
  for (auto& [order, folder] : ordered) candidates.push_back(std::move(folder));
  return candidates;
}

// Whether the evaluation before the checkpoint gave `value`.
bool has_result(const formats::CheckpointManifest& manifest, const std::string& metric,
                double value) {
  const auto found = manifest.metrics.find(utf8_text(metric));
  return found != manifest.metrics.end() && found->second == value;
}

// Why `folder` is damaged; empty if it is complete, and then its manifest is in `manifest`.
// CheckpointError if neither can be determined.
std::string damage_of(const fs::path& folder, formats::CheckpointManifest& manifest) {
  std::string reason;
  try {
    manifest = verify_checkpoint(folder);
    return {};
  } catch (const formats::UnknownManifestError& error) {
    reason = error.what();
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const DataError& error) {
    reason = error.what();
  }
  throw CheckpointError(str(reason, "; ", folder.string(),
                            " may be whole: resume when it can be read, or remove it to go on from "
                            "the checkpoint before it"));
}

// The first complete one of `folders`. `reason` describes the last damaged one. Folders that a run
// has removed meanwhile are ignored.
FoundCheckpoint first_whole(const fs::path& directory, const std::vector<fs::path>& folders,
                            std::string& reason) {
  FoundCheckpoint found;
  std::string damage;
  for (const fs::path& folder : in_order(directory, folders)) {
    if (!damage.empty()) log_warning(damage, "; the checkpoint before it is tried");
    damage.clear();
    try {
      damage = damage_of(folder, found.manifest);
    } catch (const CheckpointError&) {
      if (is_there(folder)) throw;
      continue;
    }
    if (damage.empty()) {
      found.folder = folder;
      return found;
    }
    if (!is_there(folder)) {
      damage.clear();
      continue;
    }
    reason = damage;
    found.damaged.push_back(folder);
  }
  return found;
}

}  // namespace

std::string checkpoint_name(std::int64_t step, int version) {
  char text[32];
  std::snprintf(text, sizeof(text), "step-%08lld", static_cast<long long>(step));
  return version == 1 ? text : str(text, kVersionPrefix, version);
}

bool is_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return false;
  const std::string_view numbers = std::string_view(name).substr(kStepPrefix.size());
  const std::string_view step = numbers.substr(0, numbers.find(kVersionPrefix));
  if (step.size() < kStepDigits || !has_only_digits(step)) return false;
  if (step.size() == numbers.size()) return true;
  const std::string_view version = numbers.substr(step.size() + kVersionPrefix.size());
  return !version.empty() && has_only_digits(version);
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

bool holds_checkpoint(const CheckpointOptions& options) {
  if (!checkpoint_folders(options.directory).empty()) return true;
  // A killed run may have left its only checkpoint under another name.
  if (has_folder_set_aside(options.directory, is_checkpoint_name)) return true;
  std::error_code error;
  return fs::symlink_status(options.link, error).type() == fs::file_type::regular;
}

bool decide_resume(const CheckpointOptions& options, Resume resume, bool overwrite) {
  const bool has_checkpoint = holds_checkpoint(options);
  if (!has_checkpoint && resume.mode() == Resume::kYes) {
    throw CheckpointError(str(
        "there is no checkpoint in ", options.directory.string(),
        " to resume from; to start a new run, remove TrainerOptions::resume or set it to auto"));
  }
  if (has_checkpoint && !resume && !overwrite) {
    throw ConfigError(str(options.directory.string(),
                          " already holds a checkpoint; set TrainerOptions::resume to continue "
                          "that run, TrainerOptions::overwrite to replace it, or another "
                          "CheckpointOptions::directory"));
  }
  return has_checkpoint && static_cast<bool>(resume);
}

formats::CheckpointManifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  if (!is_there(path)) throw CheckpointError(path.string() + " is missing");
  std::vector<std::byte> bytes;
  read_file(path, kMaximumManifestBytes, bytes);
  return formats::parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                 path.string());
}

formats::CheckpointManifest verify_checkpoint(const fs::path& folder) {
  formats::CheckpointManifest manifest = read_manifest(folder);
  for (const char* name : {kModelFile, kTrainingFile}) {
    if (manifest.files.contains(name)) continue;
    throw CheckpointError(str((folder / kManifestFile).string(), " does not list ", name));
  }
  for (const auto& [name, file] : manifest.files) verify_file(folder / name, file);
  return manifest;
}

fs::path find_evaluated(const fs::path& directory, std::int64_t step, const std::string& metric,
                        double value) {
  fs::path newest;
  std::int64_t newest_sequence = 0;
  std::error_code error;
  if (!fs::is_directory(directory, error)) return newest;
  for (const fs::path& folder : checkpoint_folders(directory)) {
    try {
      const formats::CheckpointManifest manifest = read_manifest(folder);
      if (manifest.step != step || !has_result(manifest, metric, value)) continue;
      if (manifest.sequence <= newest_sequence) continue;
      newest_sequence = manifest.sequence;
      newest = folder;
    } catch (const Error&) {  // damaged or unreadable
    }
  }
  return newest;
}

FoundCheckpoint find_checkpoint(const fs::path& directory) {
  std::vector<fs::path> folders = checkpoint_folders(directory);
  std::string reason;
  FoundCheckpoint found = first_whole(directory, folders, reason);
  // A run may have replaced all of them since they were listed.
  if (found.folder.empty() && checkpoint_folders(directory) != folders) {
    folders = checkpoint_folders(directory);
    reason.clear();
    found = first_whole(directory, folders, reason);
  }
  if (!found.folder.empty() || found.damaged.empty()) return found;
  throw CheckpointError(
      str(reason, "; ", directory.string(), " holds no other checkpoint",
          found.damaged.size() > 1 ? " that is whole" : "",
          "; begin a new run with TrainerOptions::overwrite instead of TrainerOptions::resume, or "
          "in another folder"));
}

}  // namespace lockstep::train
