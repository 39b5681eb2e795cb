// Resources that subgroups leave behind, and the ranks that their errors name. Both depend on the
// load of the machine, so these suites may run a second time (tools/run_tests.py). Ranks are
// threads.
#include <lockstep/comm/group/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <numeric>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/group/connect.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/strings.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>
#include <tests/support/process_usage.h>
#include <tests/support/tcp_store.h>

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using namespace testing_support;

const auto all_backends = ::testing::Values("shm", "gloo", "hierarchical");
const auto name_of_backend = [](const auto& info) { return info.param; };

class SubgroupFailures : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, SubgroupFailures, all_backends, name_of_backend);

TEST_P(SubgroupFailures, NameTheRanksOfTheWorld) {
  std::latch seen(3);
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup world) {
    auto group = world.new_group({1, 2});
    try {
      if (world.rank() == 1) group->async_barrier()->wait(std::chrono::milliseconds(300));
    } catch (...) {
      seen.arrive_and_wait();
      throw;
    }
    seen.arrive_and_wait();
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 2"));
}

class SubgroupFootprint : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, SubgroupFootprint, all_backends, name_of_backend);

// Number of open descriptors of each kind, such as "anon_inode:[eventfd] 3, socket 12".
std::string open_descriptors() {
  std::map<std::string, int> kinds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed).string();
    ++kinds[target.substr(0, target.find(":["))];
  }
  std::vector<std::string> texts;
  for (const auto& [kind, count] : kinds) texts.push_back(lockstep::str(kind, " ", count));
  return lockstep::join(texts, ", ");
}

struct Footprint {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t maps = 0;
  std::size_t rss_kib = 0;
};

Footprint footprint() {
  Footprint found{.descriptors = descriptor_count(), .threads = thread_count()};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++found.maps;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) found.rss_kib = std::stoul(line.substr(6));
  }
  return found;
}

// Allows for one group that is still being released.
Footprint most_after(const Footprint& before) {
  return {.descriptors = before.descriptors + 8,
          .threads = before.threads + 4,
          .maps = before.maps + 16,
          .rss_kib = before.rss_kib + 20 * 1024};
}

// The footprint after pending releases. On a busy machine connections and threads end late, so this
// waits up to 20 s for them.
Footprint settled_footprint(const Footprint& most) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  Footprint now = footprint();
  while (Clock::now() < deadline &&
         (now.descriptors > most.descriptors || now.threads > most.threads ||
          now.maps > most.maps || now.rss_kib > most.rss_kib)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    now = footprint();
  }
  return now;
}

// The permanent footprint of the first groups: their watchdogs connect to the store after their
// first check, and resources of later groups are released late.
Footprint steady_footprint() {
  constexpr std::chrono::seconds kSteady{1};
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  Footprint steady = footprint();
  auto since = Clock::now();
  while (Clock::now() < std::min(deadline, since + kSteady)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Footprint now = footprint();
    if (now.descriptors == steady.descriptors && now.threads == steady.threads) continue;
    steady = now;
    since = Clock::now();
  }
  return steady;
}

// The number of groups to make. LOCKSTEP_TEST_GROUPS=1000 selects the full number, which takes
// minutes over Gloo, whose groups open many connections.
int how_many(const std::string& backend) {
  const int usual = backend == "shm" ? 1000 : backend == "gloo" ? 60 : 15;
  return static_cast<int>(environment_integer("LOCKSTEP_TEST_GROUPS").value_or(usual));
}

TEST_P(SubgroupFootprint, LeavesNothingBehind) {
  const bool levels = GetParam() == "hierarchical";
  const int size = levels ? 3 : 2;  // with two of them on one host
  const int groups = how_many(GetParam());
  const c10::intrusive_ptr<c10d::Store> hashes = c10::make_intrusive<c10d::HashStore>();
  const int fd = levels ? listen_on("127.0.0.1", 0) : -1;
  Footprint before;
  Footprint after;
  std::string kinds_before;
  std::string kinds_after;
  std::int64_t keys_before = 0;
  std::int64_t keys_after = 0;
  const auto errors = run_threads(size, [&](int rank) {
    // Several hosts need a store that shows the route between them.
    const auto store = levels ? testing_support::tcp_store(rank, fd) : hashes;
    auto world = join_store(store, rank, size,
                            {.backend = GetParam(),
                             .timeout = std::chrono::seconds(30),
                             .host_id = levels ? lockstep::str(rank / 2) : "one"});
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto make = [&](int count) {
      for (int i = 0; i < count; ++i) {
        auto group = *world.new_group(ranks);
        ASSERT_EQ(group.backend(), GetParam());
        auto tensor = torch::full({5}, rank);
        group.all_reduce(tensor);
        require_equal(tensor, torch::full({5}, size * (size - 1) / 2), "sum");
        // On each rank the last handle of a group is gone before the next group is made.
      }
      world.barrier();
    };
    make(levels ? 5 : 20);
    if (rank == 0) before = steady_footprint();
    if (rank == 0) kinds_before = open_descriptors();
    if (rank == 0) keys_before = store->getNumKeys();
    world.barrier();
    make(groups);
    if (rank == 0) after = settled_footprint(most_after(before));
    if (rank == 0) kinds_after = open_descriptors();
    if (rank == 0) keys_after = store->getNumKeys();
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(size));
  const Footprint most = most_after(before);
  EXPECT_LE(after.descriptors, most.descriptors)
      << "before: " << kinds_before << "\nafter: " << kinds_after;
  EXPECT_LE(after.threads, most.threads);
  EXPECT_LE(after.maps, most.maps);
  EXPECT_LE(after.rss_kib, most.rss_kib);
  EXPECT_LE(keys_after, keys_before + 8);
}

}  // namespace
}  // namespace lockstep::comm
