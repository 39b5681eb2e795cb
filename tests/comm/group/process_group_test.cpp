// How ranks meet: init_process_group, its options, and its errors if they are inconsistent.
#include <lockstep/comm/group/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <latch>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>
#include <tests/support/ranks.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/tcp_store.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::run_threads;

TEST(SharedMemory, IsChosenOnOneHost) {
  const auto errors = run_group(2, "auto", [](ProcessGroup group) {
    if (group.backend() != "shm") throw Error(group.backend());
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(InitProcessGroup, AloneIsAGroupOfOne) {
  auto group = init_process_group({.environment = WorkerEnvironment{}});
  EXPECT_EQ(group.backend(), "single");
  EXPECT_EQ(group.size(), 1);
  auto tensor = torch::ones({3});
  group.all_reduce(tensor, ReduceOp::kAverage);
  group.broadcast(tensor);
  group.barrier();
  EXPECT_TRUE(torch::equal(tensor, torch::ones({3})));
  EXPECT_EQ(group.all_gather_object("a"), std::vector<std::string>{"a"});
  group.monitored_barrier();
  const auto child = group.new_group({0});
  ASSERT_TRUE(child);
  EXPECT_EQ(child->backend(), "single");
  EXPECT_EQ(child->world_ranks(), std::vector<int>{0});
  EXPECT_EQ(group.split(3)->size(), 1);
  EXPECT_FALSE(group.split(-1).has_value());
}

// Also the socket that rank 0 inherits from the launcher is closed once the ranks have met.
TEST(InitProcessGroup, LeavesNothingOpenOnceItsGroupsHaveEnded) {
  const auto meet = [] {
    EXPECT_EQ(run_group(2, "shm",
                        [](ProcessGroup group) {
                          auto child = *group.new_group({1, 0});
                          auto memory = child.allocate({10}, torch::kFloat32);
                          child.all_reduce(memory);
                          group.barrier();
                        }),
              no_errors(2));
  };
  meet();  // the first group opens what the process keeps
  const std::size_t before = testing_support::descriptor_count();
  meet();
  EXPECT_EQ(testing_support::descriptor_count(), before);
}

TEST(InitProcessGroup, AGroupOfOneEndsWithTheFirstReason) {
  const testing_support::TemporaryDirectory directory;
  const std::pair<const char*, const char*> reasons[] = {
      {"enough", "enough"}, {"", "the group was aborted, and no reason was given"}};
  for (const auto& [given, expected] : reasons) {
    auto group = init_process_group({.flight_recorder_directory = directory.path() / "flight",
                                     .environment = WorkerEnvironment{}});
    group.barrier();
    group.abort(given);
    group.abort("a later reason");
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_THAT(message_of<CommError>([&] { group.barrier(); }), ::testing::StartsWith(expected));
    }
  }
}

TEST(ProcessGroup, KnowsWhatItsBackendCanDo) {
  EXPECT_TRUE(init_process_group({.environment = WorkerEnvironment{}}).traits().completes_at_once);
  for (const std::string backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [&](ProcessGroup group) {
      const BackendTraits& traits = group.traits();
      const bool is_gloo = backend == "gloo";
      LOCKSTEP_CHECK(traits.memory == BackendTraits::Memory::kHost, backend);
      LOCKSTEP_CHECK(traits.progresses_alone == is_gloo, backend);
      LOCKSTEP_CHECK(traits.slow_messages == is_gloo, backend);
      LOCKSTEP_CHECK(traits.widens_halves == is_gloo, backend);
      LOCKSTEP_CHECK(traits.uses_own_memory != is_gloo, backend);
      LOCKSTEP_CHECK(!traits.completes_at_once && !traits.splits, backend);
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

TEST(InitProcessGroup, RefusesUnknownBackends) {
  EXPECT_THROW(init_process_group({.backend = "mpi", .environment = WorkerEnvironment{}}),
               ConfigError);
  if (!nccl_available()) {
    EXPECT_THROW(init_process_group({.backend = "nccl", .environment = WorkerEnvironment{}}),
                 ConfigError);
  }
}

// The current time plus the maximum duration overflows.
TEST(InitProcessGroup, WaitsForAHostForTwelveDaysAtMost) {
  EXPECT_EQ(host_timeout({.host_timeout = std::chrono::milliseconds::max()}),
            std::chrono::seconds(1'000'000));
  EXPECT_EQ(host_timeout({.host_timeout = std::chrono::milliseconds(1)}),
            std::chrono::milliseconds(1));
  EXPECT_THROW(host_timeout({.host_timeout = std::chrono::milliseconds(-1)}), ConfigError);
}

TEST(InitProcessGroup, WaitsForAHostAsLongAsTheEnvironmentSays) {
  constexpr const char* kVariable = "LOCKSTEP_HOST_TIMEOUT";
  testing_support::ScopedEnvironment environment;
  environment.set(kVariable, std::nullopt);
  EXPECT_EQ(host_timeout({}), std::chrono::seconds(10));
  environment.set(kVariable, "3");
  EXPECT_EQ(host_timeout({}), std::chrono::seconds(3));
  EXPECT_EQ(host_timeout({.host_timeout = std::chrono::milliseconds(1)}),
            std::chrono::milliseconds(1))
      << "the option wins";
  environment.set(kVariable, "0");
  EXPECT_EQ(host_timeout({}), std::chrono::seconds(0));
  environment.set(kVariable, "1000000");
  EXPECT_EQ(host_timeout({}), std::chrono::seconds(1'000'000));
  const std::string beyond = "LOCKSTEP_HOST_TIMEOUT must be from 0 to 1000000 seconds, got ";
  const std::string no_number =
      "environment variable LOCKSTEP_HOST_TIMEOUT must be a whole number, got ";
  const std::pair<const char*, std::string> refusals[] = {{"-1", beyond + "-1"},
                                                          {"1000001", beyond + "1000001"},
                                                          {"soon", no_number + "'soon'"},
                                                          {"1.5", no_number + "'1.5'"}};
  for (const auto& [value, error] : refusals) {
    environment.set(kVariable, value);
    EXPECT_EQ(
        message_of<ConfigError>([] { init_process_group({.environment = WorkerEnvironment{}}); }),
        error);
  }
}

struct Contradiction {
  const char* name;
  WorkerEnvironment second;  // environment of the second process; the first is rank 0 of 2
  const char* expected;      // in the errors of both processes
};

class Rendezvous : public ::testing::TestWithParam<Contradiction> {};

TEST_P(Rendezvous, NamesWhatContradicts) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  const auto errors = run_threads(2, [&](int process) {
    WorkerEnvironment environment{
        .rank = 0, .world_size = 2, .local_world_size = 2, .listen_fd = fd};
    if (process == 1) {
      environment = GetParam().second;
      environment.agent_store = true;  // it connects even if its rank is 0
    }
    environment.master_port = port;
    init_process_group({.timeout = std::chrono::milliseconds(800), .environment = environment});
  });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr(GetParam().expected));
}

TEST(InitProcessGroup, NamesTheRankThatDoesNotCome) {
  const int fd = listen_on("127.0.0.1", 0);
  auto environment = testing_support::environment_of(0, 3, fd);
  try {
    init_process_group({.timeout = std::chrono::milliseconds(300), .environment = environment});
    FAIL() << "no error";
  } catch (const TimeoutError& error) {
    EXPECT_STREQ(error.what(), "rank 0 waited 0.3 s for ranks 1, 2 of 3 in the roll call");
  }
}

// The limit is raised, as far as it may be, before the ranks meet. No other rank joins here.
TEST(InitProcessGroup, NeedsOpenFilesForEachRank) {
  for (const rlim_t most : {231, 232}) {
    const int fd = listen_on("127.0.0.1", 0);
    const auto errors = testing_support::run_processes(1, [&](int) {
      const rlimit low{200, most};
      if (setrlimit(RLIMIT_NOFILE, &low) != 0) throw Error("no limit");
      try {
        init_process_group({.timeout = std::chrono::milliseconds(100),
                            .environment = testing_support::environment_of(0, 100, fd)});
      } catch (const TimeoutError&) {
        rlimit raised{};
        getrlimit(RLIMIT_NOFILE, &raised);
        throw Error(str("met the others with ", raised.rlim_cur));
      }
    });
    EXPECT_EQ(errors[0], most == 232
                             ? "met the others with 232"
                             : "init_process_group: a group of 100 ranks needs 232 open files, but "
                               "this process may have 200; raise the limit (ulimit -n 232)");
    close(fd);
  }
}

TEST(InitProcessGroup, KnowsItsPlaceFromTheEnvironment) {
  const auto alone = init_process_group(
      {.environment = WorkerEnvironment{.world_size = 1, .local_rank = 2, .local_world_size = 3}});
  EXPECT_EQ(alone.local_rank(), 2);
  EXPECT_EQ(alone.local_size(), 3);
  EXPECT_EQ(alone.world_ranks(), std::vector<int>{0});
  const auto errors = run_group(4, "hierarchical", [](ProcessGroup group) {
    EXPECT_EQ(group.size(), 4);
    EXPECT_EQ(group.local_rank(), group.rank() % 2);
    EXPECT_EQ(group.local_size(), 2);
    EXPECT_EQ(group.world_ranks(), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(group.timeout(), std::chrono::seconds(30));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

// No other rank joins, so the error must be thrown before the rendezvous.
TEST(InitProcessGroup, ReadsItsVariablesBeforeItMeetsTheOthers) {
  struct Case {
    const char* variable;
    const char* text;
    const char* expected;
  };
  const Case cases[] = {
      {"LOCKSTEP_NAN_CHECK", "ture", "environment variable LOCKSTEP_NAN_CHECK must be 1, "},
      {"LOCKSTEP_DEBUG", "detial", "LOCKSTEP_DEBUG must be off or detail, got detial"},
  };
  const int fd = listen_on("127.0.0.1", 0);
  for (const Case& each : cases) {
    testing_support::ScopedEnvironment environment;
    environment.set(each.variable, each.text);
    const ProcessGroupOptions options{.timeout = std::chrono::milliseconds(300),
                                      .environment = testing_support::environment_of(1, 2, fd)};
    EXPECT_THAT(message_of<ConfigError>([&] { init_process_group(options); }),
                HasSubstr(each.expected));
  }
  close(fd);
}

TEST(ProcessGroup, APeerThatLeftIsNotAwaitedForEver) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    if (group.rank() == 1) return;
    group.monitored_barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 left the group"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Rendezvous,
    ::testing::Values(
        Contradiction{"world", {.rank = 1, .world_size = 3}, "started with a world of "},
        Contradiction{"twice", {.rank = 0, .world_size = 2}, "rank 0 is there twice"}),
    [](const auto& info) { return info.param.name; });

TEST(InitProcessGroup, NamesRanksThatWantDifferentThings) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_threads(
      2, [&](int rank) { testing_support::join_group(rank, 2, rank == 0 ? "gloo" : "shm", fd); });
  for (const auto& error : errors) {
    EXPECT_EQ(error,
              "ranks want different things: rank 0 backend gloo on cpu, rank 1 backend shm on cpu");
  }
}

// Sets the environment of rank 0 of two.
void set_place(testing_support::ScopedEnvironment& environment, std::uint16_t port) {
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"RANK", "0"},
           {"WORLD_SIZE", "2"},
           {"LOCAL_RANK", "0"},
           {"LOCAL_WORLD_SIZE", "2"},
           {"MASTER_ADDR", "127.0.0.1"},
           {"MASTER_PORT", std::to_string(port)}}) {
    environment.set(name, value);
  }
}

// A failed attempt may be followed by another on the same inherited socket.
TEST(InitProcessGroup, JoinsTheEnvironmentsGroupOnce) {
  const int fd = listen_on("127.0.0.1", 0);
  testing_support::ScopedEnvironment environment;
  set_place(environment, bound_port(fd));
  environment.set("LOCKSTEP_LISTEN_FD", std::to_string(fd));
  ProcessGroupOptions options{.timeout = std::chrono::milliseconds(100)};
  EXPECT_THROW(init_process_group(options), TimeoutError) << "rank 1 does not come";
  options.timeout = std::chrono::seconds(20);
  const auto errors = run_threads(2, [&](int rank) {
    ProcessGroupOptions own = options;
    if (rank == 1) own.environment = testing_support::environment_of(1, 2, fd);
    init_process_group(own).barrier();
  });
  EXPECT_EQ(errors, no_errors(2)) << "a second attempt";
  environment.set("LOCKSTEP_LISTEN_FD", std::nullopt);  // rank 0 has closed it
  EXPECT_THAT(message_of<ConfigError>([&] { init_process_group(options); }),
              HasSubstr("has joined its group already"));
}

TEST(InitProcessGroup, AloneJoinsOnceAsWell) {
  testing_support::ScopedEnvironment environment;
  environment.set("RANK", std::nullopt);
  environment.set("WORLD_SIZE", std::nullopt);
  const auto group = init_process_group();
  EXPECT_EQ(group.size(), 1);
  EXPECT_THAT(message_of<ConfigError>([] { init_process_group(); }),
              HasSubstr("has joined its group already; keep a copy"));
}

// Nobody deletes the keys of a failed attempt from the launcher's store.
TEST(InitProcessGroup, TriesALaunchersStoreOnce) {
  const int fd = listen_on("127.0.0.1", 0);
  testing_support::ScopedEnvironment environment;
  set_place(environment, bound_port(fd));
  environment.set("TORCHELASTIC_USE_AGENT_STORE", "True");
  const auto store = testing_support::tcp_store(0, fd);
  const ProcessGroupOptions options{.timeout = std::chrono::milliseconds(100)};
  EXPECT_THROW(init_process_group(options), TimeoutError) << "rank 1 does not come";
  EXPECT_THAT(message_of<ConfigError>([&] { init_process_group(options); }),
              HasSubstr("let the launcher start them again"));
}

// torchrun keeps its store, with the keys of the first attempt, when it restarts all ranks.
TEST(InitProcessGroup, AnAttemptDoesNotMeetTheKeysOfTheOneBefore) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto store = testing_support::tcp_store(0, fd);
  const auto join = [&](int rank, int attempt, std::chrono::milliseconds timeout) {
    auto environment = testing_support::environment_of(rank, 2, fd);
    environment.listen_fd = std::nullopt;
    environment.agent_store = true;
    environment.restart_count = attempt;
    return init_process_group({.timeout = timeout, .environment = environment});
  };
  EXPECT_THROW(join(0, 0, std::chrono::milliseconds(100)), TimeoutError) << "rank 1 does not come";
  const auto errors =
      run_threads(2, [&](int rank) { join(rank, 1, std::chrono::seconds(30)).barrier(); });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(InitProcessGroup, SaysThatThePortIsBusy) {
  const int fd = listen_on("127.0.0.1", 0);
  WorkerEnvironment environment{.rank = 0, .world_size = 2, .master_port = bound_port(fd)};
  try {
    init_process_group({.timeout = std::chrono::seconds(1), .environment = environment});
    FAIL() << "no error";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Address already in use"));
  }
  close(fd);
}

TEST(InitProcessGroup, SaysThatRankZeroIsNotThere) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  close(fd);
  WorkerEnvironment environment{.rank = 1, .world_size = 2, .master_port = port};
  EXPECT_THROW(
      init_process_group({.timeout = std::chrono::milliseconds(200), .environment = environment}),
      TimeoutError);
}

// A host may have no other loopback address.
TEST(InitProcessGroup, MeetsOnTheLoopbackOfIpv6) {
  for (const char* backend : {"shm", "gloo"}) {
    const int fd = listen_on("::1", 0);
    const auto errors = run_threads(2, [&](int rank) {
      auto environment = testing_support::environment_of(rank, 2, fd);
      environment.master_addr = "::1";
      auto group = init_process_group(
          {.backend = backend, .timeout = std::chrono::seconds(30), .environment = environment});
      auto tensor = torch::ones({10});
      group.all_reduce(tensor);
      if (tensor[0].item<float>() != 2) throw Error("wrong sum");
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2)) << backend;
  }
}

TEST(InitProcessGroup, SaysThatItsSocketIsNotOpen) {
  const int fd = listen_on("127.0.0.1", 0);
  auto environment = testing_support::environment_of(0, 2, fd);
  close(fd);
  environment.listen_fd = 1'000'000;
  EXPECT_EQ(
      message_of<CommError>([&] {
        init_process_group({.timeout = std::chrono::milliseconds(200), .environment = environment});
      }),
      "cannot duplicate a socket: Bad file descriptor");
}

// Simulates a rank 0 that is stopped before it serves, or another program that listens there.
TEST(InitProcessGroup, SaysWhichRankWaitsForWhichSilentAddress) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto environment = testing_support::environment_of(1, 2, fd);
  const auto start = Clock::now();
  EXPECT_THAT(
      message_of<TimeoutError>([&] {
        init_process_group({.timeout = std::chrono::milliseconds(300), .environment = environment});
      }),
      HasSubstr(str("rank 1 waited 0.3 s for an answer of the store at 127.0.0.1:", bound_port(fd),
                    ": it is connected but silent")));
  EXPECT_GE(seconds_since(start), 0.3);
  close(fd);
}

TEST(InitProcessGroup, SaysWhatASlowStartWaitsFor) {
  const int stopped = listen_on("127.0.0.1", 0);
  const int served = listen_on("127.0.0.1", 0);
  const testing_support::CapturedLog log;
  const auto errors = run_threads(2, [&](int rank) {
    const auto environment = testing_support::environment_of(rank, 2, rank == 0 ? served : stopped);
    init_process_group({.timeout = std::chrono::milliseconds(5600), .environment = environment});
  });
  EXPECT_THAT(log.lines(), Contains(HasSubstr("rank 0 waits for rank 1 of 2 in the roll call, for "
                                              "5 s now (the limit is 5.6 s)")));
  EXPECT_THAT(log.lines(),
              Contains(HasSubstr(str("rank 1 waits for the store at 127.0.0.1:",
                                     bound_port(stopped), ", which rank 0 serves, for 5 s now"))));
  close(stopped);
}

}  // namespace
}  // namespace lockstep::comm
