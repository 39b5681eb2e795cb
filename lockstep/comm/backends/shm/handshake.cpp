#include <lockstep/comm/backends/shm/handshake.h>

#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// Each text of a round is kYes followed by a value, or kNo followed by the reason for the refusal.
constexpr char kYes = 'y';
constexpr char kNo = 'n';

// Used when there are more ranks than processors, where spinning takes time from the awaited rank.
constexpr PatienceOptions kSharedProcessors{std::chrono::microseconds(0),
                                            std::chrono::milliseconds(2)};

// Rank 0's announcement: the address of its control segment and the nonce at its start.
struct Announcement {
  SegmentAddress address;
  std::uint64_t nonce[2] = {0, 0};
};

// The reply of a rank that has opened the segment.
struct Member {
  pid_t pid = 0;
  std::uint64_t pid_namespace = 0;  ///< PIDs are comparable only within one namespace
  cpu_set_t cpus{};
};

template <class Value>
std::string to_text(const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::string text(1 + sizeof(Value), kYes);
  std::memcpy(text.data() + 1, &value, sizeof(Value));
  return text;
}

template <class Value>
bool from_text(const std::string& text, Value& value) {
  if (text.size() != 1 + sizeof(Value) || text[0] != kYes) return false;
  std::memcpy(&value, text.data() + 1, sizeof(Value));
  return true;
}

std::string refusal(const CommError& error) { return std::string(1, kNo) + error.what(); }

// Whether all ranks agreed; if not, sets `why_not` to the first refusal.
bool all_said_yes(const std::vector<std::string>& texts, std::string& why_not) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty() && texts[rank][0] == kYes) continue;
    why_not = str("rank ", rank, ": ", texts[rank].empty() ? "" : texts[rank].substr(1));
    return false;
  }
  return true;
}

Announcement announce(const Segment& segment) {
  Announcement announcement;
  announcement.address = segment.address();
  if (getrandom(announcement.nonce, sizeof(announcement.nonce), 0) !=
      static_cast<ssize_t>(sizeof(announcement.nonce))) {
    throw CommError(str("no random numbers for the handshake: ", errno_text(errno)));
  }
  auto* header = reinterpret_cast<ControlHeader*>(segment.data());
  std::memcpy(header->nonce, announcement.nonce, sizeof(header->nonce));
  return announcement;
}

std::shared_ptr<Segment> open_announced(const Announcement& announcement, std::size_t bytes) {
  auto segment = Segment::open(announcement.address);
  const auto* header = reinterpret_cast<const ControlHeader*>(segment->data());
  if (segment->bytes() < bytes ||
      std::memcmp(header->nonce, announcement.nonce, sizeof(announcement.nonce)) != 0) {
    throw CommError("the segment found is not the one of rank 0: another host");
  }
  return segment;
}

Member this_process() {
  Member member{.pid = getpid()};
  struct stat info{};
  if (stat("/proc/self/ns/pid", &info) == 0) member.pid_namespace = info.st_ino;
  if (sched_getaffinity(0, sizeof(member.cpus), &member.cpus) != 0) CPU_ZERO(&member.cpus);
  return member;
}

// Whether there are more ranks than processors. A spinning rank would then delay its own peers.
bool share_processors(const std::vector<Member>& members) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const Member& member : members) CPU_OR(&all, &all, &member.cpus);
  return CPU_COUNT(&all) < static_cast<int>(members.size());
}

// Rounds one and two: rank 0 announces the segment, and every rank reports whether it opened it.
std::shared_ptr<Segment> share_memory(comm::TextExchange& exchange, const EngineOptions& options,
                                      std::vector<Member>& members, std::string& why_not) {
  const std::size_t bytes = Engine::control_bytes(exchange.size(), options);
  std::shared_ptr<Segment> control;
  std::string announced;
  if (exchange.rank() == 0) {
    try {
      control = Segment::create(bytes);
      announced = to_text(announce(*control));
    } catch (const CommError& error) {
      announced = refusal(error);
    }
  }
  const auto announcements = exchange.exchange("shared-memory announcement", announced);
  std::string vote;
  try {
    Announcement announcement;
    if (!from_text(announcements[0], announcement)) throw CommError(announcements[0].substr(1));
    if (exchange.rank() != 0) control = open_announced(announcement, bytes);
    vote = to_text(this_process());
  } catch (const CommError& error) {
    vote = refusal(error);
  }
  const auto votes = exchange.exchange("shared-memory vote", vote);
  if (!all_said_yes(votes, why_not)) return nullptr;
  members.resize(votes.size());
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    if (!from_text(votes[rank], members[rank]) ||
        members[rank].pid_namespace != members[0].pid_namespace) {
      why_not = str("rank ", rank, " lives in another PID namespace");
      return nullptr;
    }
  }
  return control;
}

}  // namespace

std::shared_ptr<Engine> shake_hands(comm::TextExchange& exchange, EngineOptions options,
                                    std::string& why_not) {
  if (exchange.size() > kMaxRanks) {
    why_not = str("at most ", kMaxRanks, " ranks share memory, there are ", exchange.size());
    return nullptr;
  }
  std::vector<Member> members;
  const auto control = share_memory(exchange, options, members, why_not);
  if (!control) return nullptr;
  if (share_processors(members)) options.patience = kSharedProcessors;
  auto engine = std::make_shared<Engine>(control, exchange.rank(), exchange.size(), options);
  std::vector<pid_t> pids;
  for (const Member& member : members) pids.push_back(member.pid);
  std::string watching(1, kYes);
  try {
    engine->watch(pids);
  } catch (const CommError& error) {
    watching = refusal(error);
  }
  if (!all_said_yes(exchange.exchange("shared-memory watch", watching), why_not)) return nullptr;
  engine->map_incoming();
  if (exchange.rank() == 0) control->close_descriptor();
  if (options.progress) options.progress->add(engine);
  return engine;
}

}  // namespace lockstep::shm
