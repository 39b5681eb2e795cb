#include <lockstep/train/checkpoints/checkpoint_store.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <system_error>
#include <utility>

#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/checksum.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

formats::ManifestFile sum_of(const BytePieces& pieces) {
  formats::ManifestFile file;
  formats::Checksum sum;
  for (const auto& piece : pieces) {
    sum.add(piece);
    file.bytes += piece.size();
  }
  file.checksum = sum.value();
  return file;
}

// Drops the page cache of a flushed file, so that the next read comes from the disk. If the system
// ignores the advice, the cached copy is read.
void forget_cached(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

bool is_plain_file(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::regular;
}

bool contains(const std::vector<fs::path>& paths, const fs::path& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

// Whether `folder` holds a checkpoint, complete or damaged, that may be removed. One that cannot be
// read now, or that another version wrote, may be complete and newer than all others. A folder
// without a manifest may not be a checkpoint at all.
bool may_remove(const fs::path& folder) {
  try {
    read_manifest(folder);
    return true;
  } catch (const formats::UnknownManifestError&) {
    return false;
  } catch (const CheckpointError&) {
    std::error_code error;
    return fs::exists(folder / kManifestFile, error);
  } catch (const Error&) {
    return false;
  }
}

// A "nice" value: next to a thread of the usual value (0) it gets a tenth of a busy processor.
constexpr int kPriorityOfWriting = 10;

bool leads_to(const fs::path& link, const fs::path& target) {
  std::error_code error;
  return fs::read_symlink(link, error) == target && !error;
}

}  // namespace

struct CheckpointStore::Stored {
  fs::path folder{};
  formats::CheckpointManifest manifest{};
};

// Null if there is none. `stored` is sorted from newest to oldest.
const CheckpointStore::Stored* CheckpointStore::newest_finite(const std::vector<Stored>& stored) {
  const auto found = std::find_if(stored.begin(), stored.end(),
                                  [](const Stored& each) { return each.manifest.finite; });
  return found == stored.end() ? nullptr : &*found;
}

CheckpointStore::CheckpointStore(CheckpointOptions options) : options_(std::move(options)) {}

std::optional<fs::path> CheckpointStore::resume() {
  recover_folders(options_.directory, is_checkpoint_name);
  FoundCheckpoint found = find_checkpoint(options_.directory);
  left_behind_ = std::move(found.damaged);
  if (!found.folder.empty()) {
    begin_run();
    first_sequence_ = found.manifest.first_sequence;
    parent_ = found.manifest.sequence;
    leave_behind(found.manifest);
    if (!found.manifest.finite) {
      has_diverged_ = true;
      warn_of_divergence(found.folder, "the run had diverged when it was saved");
    }
    return found.folder;
  }
  if (!options_.link.empty() && is_plain_file(options_.link)) return options_.link;
  return std::nullopt;
}

// Newer checkpoints exist if the run was killed before `latest` pointed to them, or if its user has
// gone back. Checkpoints between one of the run's lineage and its parent were left behind by an
// earlier resume that was killed before it removed them.
void CheckpointStore::leave_behind(const formats::CheckpointManifest& goes_on_from) {
  std::int64_t newest_in_line = goes_on_from.sequence;
  for (const Stored& each : of_this_run()) {
    const formats::CheckpointManifest& manifest = each.manifest;
    if (manifest.sequence > newest_in_line) {
      left_behind_.push_back(each.folder);
    } else {
      newest_in_line = manifest.parent > 0 ? manifest.parent : manifest.sequence - 1;
    }
  }
}

// Numbers the run's checkpoints after all existing ones.
void CheckpointStore::begin_run() {
  next_sequence_ = 1;
  for (const fs::path& folder : checkpoint_folders(options_.directory)) {
    try {
      next_sequence_ = std::max(next_sequence_, read_manifest(folder).sequence + 1);
    } catch (const Error&) {  // damaged or unreadable: its number is unknown
    }
  }
  first_sequence_ = next_sequence_;
  first_since_resume_ = next_sequence_;
}

void CheckpointStore::prepare() const {
  std::error_code error;
  const bool is_new = fs::create_directories(options_.directory, error);
  if (error) {
    throw CheckpointError(str("cannot make the folder of the checkpoints ",
                              options_.directory.string(), ": ", error.message()));
  }
  try {
    if (is_new) flush_names(options_.directory / "..");
  } catch (const DataError&) {  // a folder without read permission
  }
  recover_folders(options_.directory, is_checkpoint_name);
}

void CheckpointStore::save(const std::vector<CheckpointFile>& files,
                           const CheckpointMoment& moment) {
  try {
    if (first_sequence_ == 0) begin_run();
    const fs::path folder = free_folder(moment.step);
    write(files, moment, folder);
    parent_ = next_sequence_++;
    newest_ = folder;
    std::erase(left_behind_, folder);
    turn_links(folder);
    remove_others(folder);
    if (!moment.finite && !std::exchange(has_diverged_, true)) {
      warn_of_divergence(folder, "the run has diverged");
    }
  } catch (const DataError& error) {
    throw CheckpointError(str("cannot write the checkpoint: ", error.what(),
                              "; earlier checkpoints are intact; fix this and resume the run"));
  }
}

// Whether a checkpoint may be written in place of `folder`, which then is lost.
bool CheckpointStore::may_replace(const fs::path& folder) const {
  if (!may_remove(folder)) return false;
  if (contains(left_behind_, folder)) return true;
  try {
    const std::int64_t sequence = read_manifest(folder).sequence;
    // That of another run; or that of this run at the same step, so with the same weights.
    return sequence < first_sequence_ || sequence >= first_since_resume_;
  } catch (const Error&) {
    return true;  // damaged
  }
}

// Steps are numbered by the length of an epoch, so that a run resumed with other batches may reach
// a number again. The checkpoint that already has this name may be the best one of all.
fs::path CheckpointStore::free_folder(std::int64_t step) const {
  for (int version = 1;; ++version) {
    fs::path folder = options_.directory / checkpoint_name(step, version);
    std::error_code error;
    if (!fs::is_directory(folder, error) || may_replace(folder)) return folder;
  }
}

// At normal priority, this thread would delay the OpenMP thread on its processor, and the whole
// team would wait for that thread: a step would take twice as long. On Linux the priority is per
// thread, and any thread may lower its own.
void CheckpointStore::give_way() {
  const auto thread = static_cast<id_t>(gettid());
  if (getpriority(PRIO_PROCESS, thread) >= kPriorityOfWriting) return;
  static_cast<void>(setpriority(PRIO_PROCESS, thread, kPriorityOfWriting));
}

void CheckpointStore::write(const std::vector<CheckpointFile>& files,
                            const CheckpointMoment& moment, const fs::path& folder) {
  formats::CheckpointManifest manifest{.epoch = moment.epoch,
                                       .step = moment.step,
                                       .sequence = next_sequence_,
                                       .first_sequence = first_sequence_,
                                       .parent = parent_,
                                       .finite = moment.finite};
  for (const auto& [name, value] : moment.metrics) {
    if (std::isfinite(value)) manifest.metrics[name] = value;
  }
  AtomicFolder unfinished(folder);
  for (const CheckpointFile& file : files) {
    manifest.files[file.name] = sum_of(file.pieces);
    unfinished.write(file.name, file.pieces);
    forget_cached(unfinished.temporary() / file.name);
  }
  const std::string text = formats::serialize_manifest(manifest);
  unfinished.write(kManifestFile, {std::as_bytes(std::span(text.data(), text.size()))});
  try {
    verify_checkpoint(unfinished.temporary());
  } catch (const CheckpointError& error) {
    throw CheckpointError(str("cannot write the checkpoint ", folder.string(),
                              ": what was read back differs from what was written: ", error.what(),
                              "; check the disk; earlier checkpoints are whole"));
  }
  // The links of the first checkpoint are created before it gets its name, so that a reader who
  // finds a checkpoint also finds its link. A file in place of the link is a checkpoint.
  std::error_code error;
  if (!fs::exists(options_.directory / kLatestLink, error) && !is_plain_file(options_.link)) {
    turn_links(folder);
  }
  unfinished.commit();
}

// Sorted from newest to oldest.
std::vector<CheckpointStore::Stored> CheckpointStore::of_this_run() const {
  std::vector<Stored> stored;
  for (const fs::path& folder : checkpoint_folders(options_.directory)) {
    if (contains(left_behind_, folder)) continue;
    try {
      Stored each{folder, read_manifest(folder)};
      if (each.manifest.sequence >= first_sequence_) stored.push_back(std::move(each));
    } catch (const Error&) {  // damaged or unreadable since: may_remove() tells them apart
    }
  }
  std::sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) {
    return a.manifest.sequence > b.manifest.sequence;
  });
  return stored;
}

// If two are equal, the older is better: the metric has not improved since.
std::vector<CheckpointStore::Stored> CheckpointStore::best_of(std::vector<Stored> stored) const {
  const std::string monitor = utf8_text(options_.monitor);  // as manifests have it
  std::erase_if(stored, [&](const Stored& each) {
    return !each.manifest.finite || !each.manifest.metrics.contains(monitor);
  });
  const auto is_better = [&](const Stored& a, const Stored& b) {
    const double one = a.manifest.metrics.at(monitor);
    const double other = b.manifest.metrics.at(monitor);
    if (one == other) return a.manifest.sequence < b.manifest.sequence;
    return options_.mode == MetricGoal::kMin ? one < other : one > other;
  };
  std::sort(stored.begin(), stored.end(), is_better);
  const auto most = static_cast<std::size_t>(options_.save_top_k);
  if (stored.size() > most) stored.resize(most);
  return stored;
}

// Always keeps `written`.
void CheckpointStore::remove_others(const fs::path& written) {
  std::vector<Stored> stored = of_this_run();
  std::vector<fs::path> kept;
  for (const Stored& best : best_of(stored)) kept.push_back(best.folder);
  const fs::path best = options_.directory / kBestLink;
  std::error_code ignored;
  if (!kept.empty()) {
    turn_link(best, kept.front().filename());
  } else if (fs::is_symlink(best, ignored)) {
    fs::remove(best, ignored);  // it would soon lead to a checkpoint that was never evaluated
  }
  kept.push_back(written);
  const std::size_t newest = std::min(stored.size(), static_cast<std::size_t>(options_.keep_last));
  for (std::size_t i = 0; i < newest; ++i) kept.push_back(stored[i].folder);
  if (const Stored* const healthy = newest_finite(stored)) kept.push_back(healthy->folder);
  recover_folders(options_.directory,
                  is_checkpoint_name);  // retries removals
  std::vector<fs::path> folders = checkpoint_folders(options_.directory);
  // Checkpoints that were left behind are removed first: if the run is killed halfway, its own
  // remain, and their parents show which ones were left behind.
  std::stable_partition(folders.begin(), folders.end(),
                        [&](const fs::path& folder) { return contains(left_behind_, folder); });
  for (const fs::path& folder : folders) {
    if (contains(kept, folder) || !may_remove(folder)) continue;
    try {
      remove_folder(folder);
    } catch (const DataError& error) {
      log_warning(error.what(), "; the run goes on, and tries again at its next checkpoint");
    }
  }
}

// Says which checkpoint the run can go back to.
void CheckpointStore::warn_of_divergence(const fs::path& folder, const char* what_happened) {
  const std::vector<Stored> stored = of_this_run();
  const Stored* const healthy = newest_finite(stored);
  log_warning(folder.string(), " holds values that are not finite: ", what_happened,
              healthy == nullptr ? std::string()
                                 : str("; to continue from the last checkpoint that is not known "
                                       "to have diverged, resume after `ln -sfn ",
                                       healthy->folder.filename().string(), ' ',
                                       (options_.directory / kLatestLink).string(), "`"));
}

// Without links only a convenience is lost: checkpoints are found by their manifests.
void CheckpointStore::turn_link(const fs::path& link, const fs::path& target) {
  if (!has_links_ || leads_to(link, target)) return;
  try {
    replace_link(link, target);
  } catch (const DataError& error) {
    // An existing link would lead the next run to an old checkpoint. Without a link, it takes the
    // newest one.
    std::error_code ignored;
    if (fs::is_symlink(link, ignored)) {
      if (!fs::remove(link, ignored)) throw;
      log_warning(error.what(), "; the run goes on without it until its next checkpoint");
      return;
    }
    has_links_ = false;
    log_warning(error.what(), "; the run goes on without links to its checkpoints");
  }
}

void CheckpointStore::turn_links(const fs::path& latest) {
  turn_link(options_.directory / kLatestLink, latest.filename());
  if (options_.link.empty()) return;
  const fs::path weights = options_.directory / kLatestLink / kModelFile;
  std::error_code error;
  const fs::path folder = fs::absolute(options_.link, error).parent_path();
  turn_link(options_.link, fs::absolute(weights, error).lexically_relative(folder));
}

}  // namespace lockstep::train
