// Ranks of the shared-memory engine that die or stop during an operation that others wait for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
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
