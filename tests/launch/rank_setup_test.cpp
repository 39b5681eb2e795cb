#include <lockstep/launch/rank_setup.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/launch/launcher.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::launch {
namespace {

// Pinning is permanent, so each case runs in a separate process.
void in_a_process(const std::function<void()>& body) {
  EXPECT_EQ(launch_ranks({}, body).message, "");
}

void expect(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

TEST(RankSetup, PinsNeighboursToDisjointProcessors) {
  const std::vector<int> all = available_cpus();
  for (int rank = 0; rank < 2; ++rank) {
    in_a_process([&] {
      const int threads = prepare_rank(rank, 2);
      expect(available_cpus() == cpus_of_rank(all, rank, 2), "pinned elsewhere");
      expect(threads == static_cast<int>(available_cpus().size()),
             "threads are not the processors");
    });
  }
}

// The stand-in for the driver's library has GPU 0 near processor 0, and GPU 1 near processor 1.
TEST(RankSetup, PinsARankNearItsGpu) {
  const std::vector<int> all = available_cpus();
  for (const int cpu : {0, 1}) {
    if (!std::binary_search(all.begin(), all.end(), cpu)) GTEST_SKIP() << "needs processor " << cpu;
  }
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_MODULE_DIR", NVML_FOLDER);
  environment.set("CUDA_VISIBLE_DEVICES", std::nullopt);
  const auto processors = [](int local_rank, const std::vector<int>& gpus) {
    WorkerEnvironment worker;
    worker.local_rank = local_rank;
    worker.local_world_size = static_cast<int>(gpus.size());
    prepare_rank(worker, 1, gpus);
    return available_cpus();
  };
  in_a_process([&] { expect(processors(0, {1, 0}) == std::vector<int>{1}, "far from GPU 1"); });
  in_a_process([&] { expect(processors(1, {1, 0}) == std::vector<int>{0}, "far from GPU 0"); });
  // Both ranks share the only processor near GPU 0.
  in_a_process([&] { expect(processors(1, {0, 0}) == std::vector<int>{0}, "far from GPU 0"); });
  // The place of GPU 7 is not known.
  in_a_process([&] { expect(processors(1, {0, 7}) == cpus_of_rank(all, 1, 2), "no plain share"); });
}

TEST(RankSetup, LeavesASingleProcessUnpinned) {
  in_a_process([all = available_cpus()] {
    expect(prepare_rank(0, 1) == static_cast<int>(all.size()), "threads are not the processors");
    expect(available_cpus() == all, "pinned");
  });
}

TEST(RankSetup, GivesEveryRankAThread) {
  in_a_process([] { expect(prepare_rank(7, 1000) == 1, "not one thread"); });
}

TEST(RankSetup, ObeysTheRequestedThreads) {
  in_a_process([] { expect(prepare_rank(0, 2, 5) == 5, "not five threads"); });
}

TEST(RankSetup, LeavesBindingToTheScheduler) {
  in_a_process([all = available_cpus()] {
    WorkerEnvironment worker;
    worker.world_size = worker.local_world_size =
        static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) + 1;
    worker.source = "Slurm";
    expect(prepare_rank(worker) == 1, "not one thread where all share the machine");
    expect(available_cpus() == all, "pinned");
    pin_to_cpus({all.front()});
    worker.local_world_size = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    expect(prepare_rank(worker) == 1, "not the one processor of its own");
  });
}

TEST(RankSetup, DividesTheProcessorsThatASchedulerLetsAllRanksShare) {
  const std::vector<int> all = available_cpus();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (2 * static_cast<long>(all.size()) <= online) GTEST_SKIP() << "has few of the processors";
  for (const char* source : {"Slurm", "Open MPI", "PMI"}) {
    in_a_process([&] {
      WorkerEnvironment worker;
      worker.world_size = worker.local_world_size = 2;
      worker.source = source;
      expect(prepare_rank(worker) == std::max(static_cast<int>(all.size()) / 2, 1), "not half");
      expect(available_cpus() == all, "pinned");
    });
  }
}

// A scheduler shows each rank its own part of the host.
TEST(RankSetup, CountsTheProcessorsOfAHost) {
  in_a_process([all = available_cpus()] {
    const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    WorkerEnvironment worker;
    worker.source = "torchrun";
    worker.local_world_size = online;
    expect(processors_of_host(worker) == static_cast<int>(all.size()), "not those it sees");
    pin_to_cpus({all.front()});
    expect(processors_of_host(worker) == 1, "not the one that it sees");
    worker.source = "Slurm";
    expect(processors_of_host(worker) == online, "not one for each rank");
    worker.local_world_size = online + 1;
    expect(processors_of_host(worker) == 1, "more than there are");
  });
}

TEST(RankSetup, PrefixesLogLinesWithTheRank) {
  in_a_process([] {
    std::string line;
    set_log_sink([&](LogLevel, const std::string& text) { line = text; });
    prepare_rank(1, 2);
    log_error("x");
    expect(line == "[rank 1] error: x", "no prefix");
  });
}

}  // namespace
}  // namespace lockstep::launch
