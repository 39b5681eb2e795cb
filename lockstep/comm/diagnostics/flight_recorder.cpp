#include <lockstep/comm/diagnostics/flight_recorder.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <lockstep/comm/diagnostics/flight_recorder_parts.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>

namespace lockstep::comm {
namespace flight {

std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

std::int64_t wall_clock_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

Moment now() noexcept {
  constexpr int kReadings = 5;
  Moment closest;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < kReadings; ++i) {
    const std::uint64_t before = ticks();
    const Clock::time_point time = Clock::now();
    const std::uint64_t between = ticks() - before;
    if (between >= least) continue;
    least = between;
    closest = {.ticks = before + between / 2, .time = time};
  }
  return closest;
}

}  // namespace flight

static_assert(std::is_trivially_copyable_v<CallDescription>);

FlightRecorder::FlightRecorder(int rank, int world_size, std::size_t capacity)
    : rank_(rank),
      world_size_(world_size),
      capacity_(std::max<std::size_t>(capacity, 1)),
      slots_(new Slot[capacity_]),
      first_(flight::now()),
      first_ns_(flight::wall_clock_ns()) {}

FlightRecorder::~FlightRecorder() = default;

FlightRecorder::Group* FlightRecorder::add_group(std::string name, std::vector<int> world_ranks,
                                                 std::string description) {
  const std::scoped_lock lock(groups_mutex_);
  const Id oldest = next_.load() < capacity_ ? 0 : next_.load() - capacity_;
  std::erase_if(groups_, [&](const auto& each) {
    const Group& known = *each.second;
    return known.removed && (known.last_id <= oldest || known.last_id == known.first_id);
  });
  const std::uint64_t id = next_group_++;
  auto group =
      std::make_unique<Group>(id, std::move(name), std::move(world_ranks), std::move(description));
  group->first_id = next_.load();
  return groups_.emplace(id, std::move(group)).first->second.get();
}

void FlightRecorder::remove_group(Group* group) {
  const std::scoped_lock lock(groups_mutex_);
  group->removed = true;
  group->last_id = next_.load();
}

FlightRecorder::Id FlightRecorder::created(Group* group, std::uint64_t sequence,
                                           const CallDescription& call, bool begun) noexcept {
  const Id id = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[id % capacity_];
  std::uint64_t before = slot.tag.load(std::memory_order_relaxed);
  // A thread that was delayed for a whole round of the ring buffer must not overwrite the newer
  // operation.
  if (before > flight::tag(id, flight::kWriting) ||
      (before != 0 && (before & flight::kStateMask) == flight::kWriting) ||
      !slot.tag.compare_exchange_strong(before, flight::tag(id, flight::kWriting),
                                        std::memory_order_acq_rel)) {
    return id;
  }
  Record record{.group = group, .group_id = group->id, .sequence = sequence, .call = call};
  if (call.root >= 0) {
    const auto peer = static_cast<std::size_t>(call.root);
    if (call.kind == CallKind::kSend) record.message = group->sent[peer].fetch_add(1);
    if (call.kind == CallKind::kRecv) record.message = group->received[peer].fetch_add(1);
  }
  std::array<std::uint64_t, Slot::kWords> words{};
  std::memcpy(words.data(), &record, sizeof record);
  // Release: a reader of one of these words also sees the tag kWriting.
  for (std::size_t i = 0; i < words.size(); ++i)
    slot.record[i].store(words[i], std::memory_order_release);
  const std::uint64_t now = flight::ticks();
  slot.started.store(begun ? now : 0, std::memory_order_release);
  slot.ended.store(0, std::memory_order_release);
  slot.source.store(0, std::memory_order_release);
  slot.message.store(0, std::memory_order_release);
  slot.created.store(now, std::memory_order_release);
  slot.tag.store(flight::tag(id, begun ? flight::kStarted : flight::kScheduled),
                 std::memory_order_release);
  return id;
}

FlightRecorder::Slot* FlightRecorder::change_state(Id id, std::uint64_t state) noexcept {
  Slot& slot = slots_[id % capacity_];
  std::uint64_t before = slot.tag.load(std::memory_order_acquire);
  while (before >> flight::kStateBits == id + 1 && (before & flight::kStateMask) < state) {
    if (slot.tag.compare_exchange_weak(before, flight::tag(id, state), std::memory_order_acq_rel))
      return &slot;
  }
  return nullptr;  // overwritten by a later operation, or ended already
}

void FlightRecorder::started(Id id) noexcept {
  if (Slot* slot = change_state(id, flight::kStarted)) {
    slot->started.store(flight::ticks(), std::memory_order_release);
  }
}

void FlightRecorder::completed(Id id, int source) noexcept {
  Slot* slot = change_state(id, flight::kCompleted);
  if (slot == nullptr) return;
  slot->ended.store(flight::ticks(), std::memory_order_release);
  if (source < 0) return;
  Record record;
  std::array<std::uint64_t, Slot::kWords> words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = slot->record[i].load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(&record), words.data(), sizeof record);
  const auto peer = static_cast<std::size_t>(source);
  if (record.call.kind != CallKind::kRecv || record.call.root >= 0 ||
      peer >= record.group->world_ranks.size()) {
    return;
  }
  slot->message.store(record.group->received[peer].fetch_add(1) + 1, std::memory_order_release);
  slot->source.store(peer + 1, std::memory_order_release);
}

void FlightRecorder::failed(Id id) noexcept {
  if (Slot* slot = change_state(id, flight::kFailed)) {
    slot->ended.store(flight::ticks(), std::memory_order_release);
  }
}

std::vector<FlightRecorder::Snapshot> FlightRecorder::snapshot() const {
  std::vector<Snapshot> result;
  const Id end = next_.load();
  for (Id id = end < capacity_ ? 0 : end - capacity_; id < end; ++id) {
    const Slot& slot = slots_[id % capacity_];
    const std::uint64_t tag = slot.tag.load(std::memory_order_acquire);
    if (tag >> flight::kStateBits != id + 1 || (tag & flight::kStateMask) == flight::kWriting)
      continue;
    Snapshot copy{.id = id,
                  .state = tag & flight::kStateMask,
                  .created = slot.created.load(std::memory_order_acquire),
                  .started = slot.started.load(std::memory_order_acquire),
                  .ended = slot.ended.load(std::memory_order_acquire),
                  .record = {}};
    std::array<std::uint64_t, Slot::kWords> words{};
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = slot.record[i].load(std::memory_order_acquire);
    const std::uint64_t source = slot.source.load(std::memory_order_acquire);
    const std::uint64_t message = slot.message.load(std::memory_order_acquire);
    if (slot.tag.load(std::memory_order_relaxed) >> flight::kStateBits != id + 1) continue;
    std::memcpy(static_cast<void*>(&copy.record), words.data(), sizeof copy.record);
    if (source != 0) {
      copy.record.call.root = static_cast<std::int32_t>(source - 1);
      copy.record.message = message - 1;
    }
    result.push_back(copy);
  }
  return result;
}

namespace {

// The folder for temporary files is shared, so another user may have put a folder or a link there.
void make_own_directory(const std::filesystem::path& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    throw DataError(str("cannot create the folder ", directory.string(), ": ", errno_text(errno)));
  }
  struct stat info{};
  if (lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    throw DataError(
        str("cannot write the flight recorder into ", directory.string(), ": not a folder"));
  }
  if (info.st_uid != geteuid()) {
    throw DataError(str("cannot write the flight recorder into ", directory.string(),
                        ": it belongs to user ", info.st_uid, ", expected ", geteuid()));
  }
}

constexpr std::size_t kJobsKept = 20;

// A job's folder is named after the time at which the job began.
bool is_job_folder(const std::filesystem::directory_entry& entry) {
  constexpr std::string_view kLike = "00000000T000000Z-";
  const std::string name = entry.path().filename();
  if (name.size() <= kLike.size() || !entry.is_directory() || entry.is_symlink()) return false;
  return std::equal(kLike.begin(), kLike.end(), name.begin(), [](char like, char is) {
    return like == '0' ? is >= '0' && is <= '9' : is == like;
  });
}

// Nothing else cleans up this folder. Entries that cannot be removed stay: another rank may be
// removing them. `own` stays too, because a long-running job is older by name than later jobs.
void keep_newest_jobs(const std::filesystem::path& folder, const std::filesystem::path& own) {
  std::error_code error;
  std::vector<std::filesystem::path> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (is_job_folder(entry)) jobs.push_back(entry.path());
  }
  std::sort(jobs.begin(), jobs.end());
  for (std::size_t i = 0; i + kJobsKept < jobs.size(); ++i) {
    if (jobs[i] != own) std::filesystem::remove_all(jobs[i], error);
  }
}

}  // namespace

std::filesystem::path user_flight_directory() {
  std::error_code error;
  auto folder = std::filesystem::temp_directory_path(error);
  if (error) folder = "/tmp";
  return folder / str("lockstep_flight_", geteuid());
}

std::filesystem::path FlightRecorder::dump(const std::filesystem::path& directory) const {
  const std::filesystem::path parent = directory.parent_path();
  if (parent == user_flight_directory()) {
    make_own_directory(parent);
  } else if (!parent.empty()) {
    std::error_code ignored;  // mkdir reports the error
    std::filesystem::create_directories(parent, ignored);
  }
  make_own_directory(directory);
  const std::filesystem::path path = directory / str("rank_", rank_);
  write_file_atomically(path, pickle());
  if (parent == user_flight_directory()) keep_newest_jobs(parent, directory);
  return path;
}

}  // namespace lockstep::comm
