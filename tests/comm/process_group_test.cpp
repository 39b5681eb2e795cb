// Process groups with ranks as threads: every backend gives the same answers and the same errors.
#include <lockstep/comm/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <latch>

#include <lockstep/comm/network.h>
#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/ranks.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::run_threads;

class Backends : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Backends, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(Backends, ReducesTensorsOfManyShapesAndTypes) {
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    EXPECT_EQ(group.backend(), GetParam());
    const int rank = group.rank();
    for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kInt32, torch::kInt64}) {
      for (const std::vector<std::int64_t>& shape :
           std::vector<std::vector<std::int64_t>>{{}, {1}, {0}, {1000, 3}, {2, 3, 4, 5}}) {
        auto tensor = torch::full(shape, rank + 1, dtype);
        group.all_reduce(tensor);
        if (!torch::equal(tensor, torch::full(shape, 6, dtype))) throw Error("wrong sum");
      }
    }
    auto tensor = torch::full({10}, 1.5 * (rank + 1));
    group.all_reduce(tensor, ReduceOp::kAverage);
    if (!torch::allclose(tensor, torch::full({10}, 3.0))) throw Error("wrong average");
    auto channels_last = torch::full({2, 3, 4, 5}, rank).to(torch::MemoryFormat::ChannelsLast);
    group.all_reduce(channels_last);
    if (channels_last.sum().item<double>() != 3 * 120) throw Error("wrong channels-last sum");
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST_P(Backends, BroadcastsAndAllocates) {
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    auto buffer = group.allocate({5, 7}, torch::kFloat32);
    if (buffer.abs().sum().item<float>() != 0) throw Error("not zeroed");
    for (int root = 0; root < 2; ++root) {
      buffer.fill_(group.rank() * 10 + root);
      group.broadcast(buffer, root);
      if (!torch::equal(buffer, torch::full({5, 7}, root * 11.0F))) throw Error("wrong broadcast");
    }
    auto row = buffer[3];  // a view into symmetric memory
    row.fill_(group.rank() + 1);
    group.all_reduce(row, ReduceOp::kAverage);
    if (!torch::equal(buffer[3], torch::full({7}, 1.5F))) throw Error("wrong view");
    if (!torch::equal(buffer[2], torch::full({7}, 11.0F))) throw Error("outside of the view");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Backends, RunsOperationsAsynchronously) {
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    std::vector<torch::Tensor> tensors;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(torch::full({i * 100 + 1}, group.rank() + i));
      works.push_back(group.async_all_reduce(tensors.back()));
    }
    for (auto& work : works) {
      while (!work->is_completed()) std::this_thread::yield();
      work->wait();
    }
    for (int i = 0; i < 20; ++i) {
      if (tensors[i].max().item<int>() != 2 * i + 1) throw Error("wrong");
      if (tensors[i].min().item<int>() != 2 * i + 1) throw Error("wrong");
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Backends, GathersTextInRankOrder) {
  const auto errors = run_group(3, GetParam(), [](ProcessGroup group) {
    for (int i = 0; i < 3; ++i) {
      const auto texts = group.all_gather_object(str("rank ", group.rank(), " round ", i));
      for (int rank = 0; rank < 3; ++rank) {
        if (texts[rank] != str("rank ", rank, " round ", i)) throw Error(texts[rank]);
      }
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST_P(Backends, RefusesWhatCannotBe) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    auto integers = torch::ones({3}, torch::kInt64);
    EXPECT_THROW(group.all_reduce(integers, ReduceOp::kAverage), ConfigError);
    EXPECT_THROW(group.broadcast(integers, 2), ConfigError);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Backends, AWaitEndsAtItsDeadline) {
  std::latch seen(2);
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    if (group.rank() == 0) {
      auto tensor = torch::ones({4});
      const auto start = Clock::now();
      auto work = group.async_all_reduce(tensor);
      EXPECT_THROW(work->wait(std::chrono::milliseconds(200)), TimeoutError);
      EXPECT_LT(seconds_since(start), 5);
    }
    seen.arrive_and_wait();  // rank 1 stays until rank 0 has seen the deadline
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SharedMemory, ReducesStridedTensorsAndHalfTypes) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    auto base = torch::full({6, 6}, group.rank() + 1.0);
    auto column = base.select(1, 2);
    group.all_reduce(column);
    if (base.sum().item<double>() != 30 * (group.rank() + 1.0) + 18) throw Error("strided");
    for (const auto dtype : {torch::kFloat16, torch::kBFloat16}) {
      auto tensor = torch::full({100}, group.rank() + 0.5, dtype);
      group.all_reduce(tensor, ReduceOp::kAverage);
      if (!torch::equal(tensor, torch::full({100}, 1.0, dtype))) throw Error("half");
    }
    EXPECT_THROW(group.all_reduce(torch::ones({3}, torch::kBool)), ConfigError);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

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
}

TEST(InitProcessGroup, RefusesUnknownBackends) {
  EXPECT_THROW(init_process_group({.backend = "mpi", .environment = WorkerEnvironment{}}), ConfigError);
  if (!nccl_available()) {
    EXPECT_THROW(init_process_group({.backend = "nccl", .environment = WorkerEnvironment{}}),
                 ConfigError);
  }
}

struct Contradiction {
  const char* name;
  WorkerEnvironment second;  // of the second process; the first is rank 0 of 2
  const char* expected;      // in the error of either
};

class Rendezvous : public testing::TestWithParam<Contradiction> {};

TEST_P(Rendezvous, NamesWhatContradicts) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  const auto errors = run_threads(2, [&](int process) {
    WorkerEnvironment environment{.rank = 0, .world_size = 2, .local_world_size = 2, .listen_fd = fd};
    if (process == 1) {
      environment = GetParam().second;
      environment.agent_store = true;  // it connects, whatever its rank says
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

TEST(ProcessGroup, ADyingPeersTextIsNotAwaitedForEver) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    if (group.rank() == 1) return;
    group.all_gather_object("are you there?");
  });
  EXPECT_EQ(errors[0], "rank 1 left the group");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Rendezvous,
    testing::Values(
        Contradiction{"world", {.rank = 1, .world_size = 3}, "started with a world of "},
        Contradiction{"twice", {.rank = 0, .world_size = 2}, "rank 0 is there twice"}),
    [](const auto& info) { return info.param.name; });

TEST(InitProcessGroup, NamesRanksThatWantDifferentThings) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_threads(2, [&](int rank) {
    testing_support::join_group(rank, 2, rank == 0 ? "gloo" : "shm", fd);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(error, "ranks want different things: rank 0 backend gloo on cpu, rank 1 backend shm on cpu");
  }
}

TEST(InitProcessGroup, JoinsTheEnvironmentsGroupOnce) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(bound_port(fd))}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  close(fd);
  const ProcessGroupOptions options{.timeout = std::chrono::milliseconds(100)};
  EXPECT_THROW(init_process_group(options), TimeoutError) << "rank 1 does not come";
  EXPECT_THROW(init_process_group(options), ConfigError);
  for (const auto& [name, value] : variables) unsetenv(name);
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

}  // namespace
}  // namespace lockstep
