// Ranks of the shared-memory engine that die or stop during an operation that others wait for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/comm/backends/shm/liveness.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

constexpr int kSize = 3;
constexpr int kVictim = 1;

std::byte* bytes_of(std::vector<float>& data) { return reinterpret_cast<std::byte*>(data.data()); }

Engine::Ticket all_reduce(Engine& engine, std::vector<float>& data, std::uint64_t number) {
  return engine.post(
      {.kind = CallKind::kAllReduce, .type = detail::DataType::kFloat32, .count = data.size()},
      number, bytes_of(data), bytes_of(data));
}

// Every rank watches all other processes, as after the handshake.
std::shared_ptr<Engine> watched_engine(const ShmGroup& group, int rank) {
  auto engine = group.engine(rank);
  std::vector<std::int32_t> pids(kSize);
  pids[static_cast<std::size_t>(rank)] = getpid();
  auto* const data = reinterpret_cast<std::byte*>(pids.data());
  engine->wait(
      engine->post({.kind = CallKind::kAllReduce, .type = detail::DataType::kInt32, .count = kSize},
                   std::uint64_t{0}, data, data),
      kTimeout);
  engine->watch({pids.begin(), pids.end()});
  engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{1}, nullptr, nullptr),
               kTimeout);
  return engine;
}

// A time in memory that the processes share. The memory is never freed.
std::atomic<Clock::rep>& shared_moment() {
  return *static_cast<std::atomic<Clock::rep>*>(mmap(nullptr, sizeof(std::atomic<Clock::rep>),
                                                     PROT_READ | PROT_WRITE,
                                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

// The victim dies after starting this number of operations. It has not completed the last one.
class Killed : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(AfterOperations, Killed, testing::Values(1, 2, 17, 100));

TEST_P(Killed, IsNamedByAllOthersWithinTwoSeconds) {
  const ShmGroup group(kSize);
  auto& death = shared_moment();
  const auto errors = run_processes(kSize, [&](int rank) {
    auto engine = watched_engine(group, rank);
    std::vector<float> data(300000);  // several chunks
    for (int i = 0;; ++i) {
      const auto ticket = all_reduce(*engine, data, static_cast<std::uint64_t>(i + 2));
      if (rank == kVictim && i == GetParam()) {
        death = Clock::now().time_since_epoch().count();
        raise(SIGKILL);
      }
      engine->wait(ticket, kTimeout);
    }
  });
  EXPECT_LT(seconds_since(Clock::time_point(Clock::duration(death.load()))), 2);
  EXPECT_EQ(errors[kVictim], "killed by signal 9");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1 (process "), HasSubstr("died while rank "),
                                    HasSubstr("all_reduce[float32, 300000] (operation ")));
  }
}

// A rank that only polls also detects the death, during an operation or when it begins one.
TEST(KilledRank, IsNamedByWhoOnlyAsks) {
  const ShmGroup group(kSize);
  const auto start = Clock::now();
  const auto errors = run_processes(kSize, [&](int rank) {
    auto engine = watched_engine(group, rank);
    std::vector<float> data(10);
    const auto ticket = all_reduce(*engine, data, 2);
    if (rank == kVictim) raise(SIGKILL);
    while (!engine->test(ticket)) continue;
    const auto next = all_reduce(*engine, data, 3);
    while (!engine->test(next)) continue;
  });
  EXPECT_LT(seconds_since(start), 2);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1 (process "), HasSubstr(") died")));
  }
}

// The death is detected even if every liveness check happens during a message from a live rank.
TEST(KilledRank, IsNamedByWhoAsksForMessagesInTurn) {
  const ShmGroup group(kSize);
  const auto start = Clock::now();
  const auto errors = run_processes(kSize, [&](int rank) {
    auto engine = watched_engine(group, rank);
    std::vector<float> data(10);
    const auto receive = [&](int from) {
      const CallDescription call{
          .kind = CallKind::kRecv, .type = detail::DataType::kFloat32, .root = from, .count = 10};
      return engine->post(call, 0, bytes_of(data));
    };
    if (rank == kVictim) raise(SIGKILL);
    if (rank == 0) {
      const auto from_alive = receive(2), from_dead = receive(kVictim);
      while (!engine->test(*from_alive) && !engine->test(*from_dead)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(21));
      }
    }
    const auto ticket = all_reduce(*engine, data, 2);
    engine->wait(ticket, kTimeout);
  });
  EXPECT_LT(seconds_since(start), 2);
  for (const int rank : {0, 2}) EXPECT_THAT(errors[rank], HasSubstr("rank 1 (process "));
}

TEST(KilledSender, IsNamedByWhoReceives) {
  const ShmGroup group(kSize);
  const auto start = Clock::now();
  const auto errors = run_processes(kSize, [&](int rank) {
    auto engine = watched_engine(group, rank);
    std::vector<float> data(4000000);
    const CallDescription send{
        .kind = CallKind::kSend, .type = detail::DataType::kFloat32, .root = 0, .count = 4000000};
    const CallDescription receive{
        .kind = CallKind::kRecv, .type = detail::DataType::kFloat32, .root = 1, .count = 4000000};
    if (rank == kVictim) {
      engine->post(send, 0, bytes_of(data));  // sends only the first bytes
      raise(SIGKILL);
    }
    if (rank == 0) engine->wait(*engine->post(receive, 0, bytes_of(data)), kTimeout);
    engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{2}, nullptr, nullptr),
                 kTimeout);
  });
  EXPECT_LT(seconds_since(start), 2);
  EXPECT_THAT(errors[0] + errors[2], HasSubstr("rank 1 (process "));
  for (const int rank : {0, 2}) EXPECT_THAT(errors[rank], HasSubstr(") died while rank "));
}

// A stopped rank is alive. The others wait until their deadline and then report the last operation
// of every rank.
TEST(Stopped, IsNamedAtTheDeadline) {
  const ShmGroup group(kSize);
  std::atomic<pid_t>* const victim = static_cast<std::atomic<pid_t>*>(
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
           -1, 0));
  const auto errors = run_processes(kSize, [&](int rank) {
    auto engine = watched_engine(group, rank);
    std::vector<float> data(10);
    if (rank == kVictim) {
      victim->store(getpid());
      raise(SIGSTOP);
      return;  // continued at the end of the test
    }
    const auto start = Clock::now();
    try {
      engine->wait(all_reduce(*engine, data, 17),
                   std::chrono::milliseconds(rank == 0 ? 400 : 20000));
    } catch (const CommError& error) {
      if (seconds_since(start) > 2) throw Error("late");
      if (rank == 0) kill(victim->load(), SIGCONT);
      if (dynamic_cast<const TimeoutError*>(&error) == nullptr) throw Error("no timeout");
      throw;
    }
  });
  EXPECT_EQ(errors[kVictim], "");
  EXPECT_THAT(
      errors[0],
      AllOf(HasSubstr("rank 0 waited 0.4 s in all_reduce[float32, 10] (operation 17) for rank 1 "),
            HasSubstr("to arrive at it; rank 1 last called barrier (operation 1)"),
            HasSubstr("rank 2 last called all_reduce[float32, 10] (operation 17)")));
  EXPECT_THAT(errors[2], HasSubstr("rank 0 ended the group: rank 0 waited 0.4 s"));
  munmap(victim, sizeof(*victim));
}

std::string deadline_of_a_barrier(Engine& engine) {
  const auto ticket = engine.post({.kind = CallKind::kBarrier}, std::uint64_t{0}, nullptr, nullptr);
  return message_of<TimeoutError>([&] { engine.wait(ticket, std::chrono::milliseconds(50)); });
}

// First the rank that is waited for, then the others in their order, with what each called last.
TEST(ShmDeadline, NamesTheRanksOfTheWorldAndTheirCalls) {
  const ShmGroup group(3, {.world_ranks = {4, 7, 9}});
  const auto first = group.engine(0), second = group.engine(1), third = group.engine(2);
  std::vector<std::byte> bytes(8);
  first->post({.kind = CallKind::kBarrier}, std::uint64_t{0}, nullptr, nullptr);
  first->post({.kind = CallKind::kSend, .root = 1, .count = 8}, 0, bytes.data());
  EXPECT_EQ(deadline_of_a_barrier(*third),
            str("rank 9 waited 0.05 s in barrier (operation 0) for rank 7 (process ", getpid(),
                ") to arrive at it; rank 7 has called nothing yet; rank 4 last called barrier "
                "(operation 0) and send[bytes, 8, to rank 1]"));
  const ShmGroup other(3, {.world_ranks = {4, 7, 9}});
  const auto sender = other.engine(1), receiver = other.engine(2);
  sender->post({.kind = CallKind::kSend, .root = 0, .count = 8}, 0, bytes.data());
  const auto transfer =
      receiver->post({.kind = CallKind::kRecv, .root = 0, .count = 8}, 0, bytes.data());
  EXPECT_EQ(
      message_of<TimeoutError>([&] { receiver->wait(*transfer, std::chrono::milliseconds(50)); }),
      "rank 9 waited 0.05 s in recv[bytes, 8, from rank 0]; rank 4 has called nothing yet; "
      "rank 7 last called send[bytes, 8, to rank 0]");
}

TEST(ShmDeadline, NamesTheCallsOfSixteenRanksAtMost) {
  for (const int size : {17, 18}) {
    const ShmGroup group(size);
    const std::string text = deadline_of_a_barrier(*group.engine(0));
    for (int rank = 1; rank < size; ++rank) {
      const bool is_named = text.find(str("rank ", rank, " has called")) != std::string::npos;
      EXPECT_EQ(is_named, rank <= 16) << text;
    }
  }
}

// A child that stops itself once it has its name.
class StoppedChild {
 public:
  explicit StoppedChild(const char* name) : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_NAME, name);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      raise(SIGSTOP);
      for (;;) pause();
    }
    waitpid(pid_, nullptr, WUNTRACED);
  }
  ~StoppedChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StoppedChild(const StoppedChild&) = delete;
  StoppedChild& operator=(const StoppedChild&) = delete;

  void go_on() const {
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, WCONTINUED);
  }
  void die() const {
    kill(pid_, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

// The name of a program may look like what follows it in /proc.
TEST(ShmLiveness, TellsDeadAndStoppedRanksApart) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const std::size_t descriptors = descriptor_count();
  const StoppedChild first("a) S b"), second("a) T b");
  {
    const Liveness liveness({first.pid(), getpid(), second.pid()});
    const auto stopped = [&] {
      std::vector<int> ranks;
      for (int rank = 0; rank < 3; ++rank) {
        if (liveness.is_stopped(rank)) ranks.push_back(rank);
      }
      return ranks;
    };
    EXPECT_THAT(stopped(), ElementsAre(0, 2));
    EXPECT_THAT(liveness.dead_ranks(), IsEmpty());
    second.go_on();
    EXPECT_THAT(stopped(), ElementsAre(0));
    EXPECT_FALSE(liveness.is_dead(2));
    second.die();
    EXPECT_THAT(stopped(), ElementsAre(0));
    EXPECT_THAT(liveness.dead_ranks(), ElementsAre(2));
    EXPECT_TRUE(liveness.is_dead(2));
    EXPECT_FALSE(liveness.is_dead(0));
    first.die();
    EXPECT_THAT(stopped(), IsEmpty());
    EXPECT_THAT(liveness.dead_ranks(), ElementsAre(0, 2));
  }
  EXPECT_EQ(descriptor_count(), descriptors);
}

TEST(ShmLiveness, CannotWatchAProcessThatIsGone) {
  pid_t gone = 0;
  {
    const StoppedChild child("gone");
    gone = child.pid();
  }
  const std::size_t descriptors = descriptor_count();
  EXPECT_EQ(message_of<CommError>([&] { Liveness({getpid(), gone}); }),
            str("rank 1 (process ", gone, ") cannot be watched: No such process"));
  EXPECT_EQ(descriptor_count(), descriptors);
}

std::vector<std::shared_ptr<Engine>> engines_of(const ShmGroup& group) {
  std::vector<std::shared_ptr<Engine>> engines;
  for (int rank = 0; rank < group.size; ++rank) engines.push_back(group.engine(rank));
  return engines;
}

// Between calls a rank may ask whether all peers are there. The group goes on without one that
// left.
TEST(ShmCheck, NamesAPeerThatLeftWhateverItsRank) {
  for (const auto& [leaver, name] : {std::pair(0, "rank 4"), std::pair(2, "rank 9")}) {
    const ShmGroup group(kSize, {.world_ranks = {4, 7, 9}});
    auto engines = engines_of(group);
    EXPECT_EQ(message_of<CommError>([&] { engines[1]->check(); }), "nothing was thrown");
    engines[static_cast<std::size_t>(leaver)].reset();
    EXPECT_EQ(message_of<CommError>([&] { engines[1]->check(); }), str(name, " left the group"));
    EXPECT_EQ(message_of<CommError>([&] { engines[1]->throw_if_ended(); }), "nothing was thrown");
  }
}

TEST(ShmCheck, EndsTheGroupOfAPeerThatDied) {
  for (const auto& [victim, name] : {std::pair(0U, "rank 4"), std::pair(2U, "rank 9")}) {
    const StoppedChild child("victim");
    const ShmGroup group(kSize, {.world_ranks = {4, 7, 9}});
    const auto engines = engines_of(group);
    std::vector<pid_t> pids(kSize, getpid());
    pids[victim] = child.pid();
    engines[1]->watch(pids);
    EXPECT_EQ(message_of<CommError>([&] { engines[1]->check(); }), "nothing was thrown");
    child.die();
    const std::string reason = str(name, " (process ", getpid(), ") died");
    EXPECT_EQ(message_of<CommError>([&] { engines[1]->check(); }), reason);
    EXPECT_EQ(message_of<CommError>([&] { engines[2 - victim]->check(); }),
              "rank 7 ended the group: " + reason);
  }
}

// A message waits for one rank, which may itself wait for one that is stopped.
TEST(ShmDeadline, NamesTheRanksThatAreStopped) {
  const StoppedChild child("stopped"), other("other");
  for (const bool both : {false, true}) {
    if (!both) other.go_on();
    if (both) {
      kill(other.pid(), SIGSTOP);
      waitpid(other.pid(), nullptr, WUNTRACED);
    }
    const ShmGroup group(3, {.world_ranks = {4, 7, 9}});
    const auto first = group.engine(0), second = group.engine(1), third = group.engine(2);
    first->watch({getpid(), other.pid(), child.pid()});
    std::vector<std::byte> bytes(8);
    const auto transfer =
        first->post({.kind = CallKind::kRecv, .root = 1, .count = 8}, 0, bytes.data());
    const std::string process = str(" (process ", getpid(), ")");
    EXPECT_EQ(
        message_of<TimeoutError>([&] { first->wait(*transfer, std::chrono::milliseconds(50)); }),
        str("rank 4 waited 0.05 s in recv[bytes, 8, from rank 1] for ",
            both ? str("rank 7", process, ", rank 9", process, ", which are stopped")
                 : str("rank 9", process, ", which is stopped"),
            "; rank 7 has called nothing yet; rank 9 has called nothing yet"));
  }
}

// A process that can shrink a segment could remove memory that its readers still use.
TEST(Segment, IsOpenedOnlyWhereItCannotShrink) {
  constexpr std::size_t kBytes = 4096;
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK}) {
    const int fd = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, kBytes), 0);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    const shm::SegmentAddress address{getpid(), fd, kBytes};
    const auto errors = run_processes(1, [&](int) { shm::Segment::open(address); });
    if ((seals & F_SEAL_SHRINK) != 0) {
      EXPECT_EQ(errors[0], "");
    } else {
      EXPECT_THAT(errors[0], HasSubstr("is not a segment of this job"));
    }
    close(fd);
  }
}

// Requires less than 10 ms of processor time for 100 ms of waiting.
TEST(Idle, RanksSleep) {
  const ShmGroup group(2);
  const auto errors = run_processes(2, [&](int rank) {
    auto engine = group.engine(rank);
    engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{0}, nullptr, nullptr),
                 kTimeout);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto start = Clock::now();
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{1}, nullptr, nullptr),
                 kTimeout);
    getrusage(RUSAGE_SELF, &after);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    const double used = seconds(after.ru_utime) + seconds(after.ru_stime) -
                        seconds(before.ru_utime) - seconds(before.ru_stime);
    if (rank == 0 && used > 0.1 * seconds_since(start)) throw Error(str("used ", used, " s"));
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep::shm
