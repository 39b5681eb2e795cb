#include <lockstep/parallel/base/thread_share.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include <dlfcn.h>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(ThreadShare, GivesTheFirstMembersWhatIsLeft) {
  EXPECT_THAT(detail::divided_threads(4, 2), ElementsAre(2, 2));
  EXPECT_THAT(detail::divided_threads(5, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(detail::divided_threads(1, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(detail::divided_threads(7, 1), ElementsAre(7));
}

TEST(ThreadShare, MustBeGivenToEachMember) {
  detail::ThreadTeam team({"a", "b"});
  for (const std::vector<int>& counts : {std::vector<int>{1}, {1, 1, 1}}) {
    const std::string problem =
        str("a team of 2 threads got ", counts.size(), " numbers of threads");
    EXPECT_THAT(testing_support::message_of<InternalError>(
                    [&] { detail::set_threads_of_members(team, counts); }),
                testing::EndsWith(problem));
    EXPECT_THAT(testing_support::message_of<InternalError>(
                    [&] { detail::keep_members_apart(team, counts); }),
                testing::EndsWith(problem));
  }
}

TEST(ThreadShare, IsTheMembersOwn) {
  at::set_num_threads(3);
  detail::ThreadTeam team({"a", "b"});
  detail::set_threads_of_members(team, {2, 1});
  std::vector<int> seen(2, 0);
  team.run([&](std::size_t member) { seen[member] = at::get_num_threads(); });
  EXPECT_THAT(seen, ElementsAre(2, 1));
  EXPECT_EQ(at::get_num_threads(), 3);
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, 3);
  EXPECT_THROW(detail::set_threads_of_members(team, {1}), InternalError);
}

TEST(ThreadShare, KeepsMembersOnProcessorsOfTheirOwn) {
  const std::vector<int> cpus = available_cpus();
  detail::ThreadTeam team({"first", "second"});
  detail::keep_members_apart(team, {1, 1});
  std::vector<std::vector<int>> of_members(2);
  team.run([&](std::size_t member) { of_members[member] = available_cpus(); });
  for (int member = 0; member < 2; ++member) {
    EXPECT_EQ(of_members[static_cast<std::size_t>(member)],
              cpus.size() < 2 ? cpus : cpus_of_rank(cpus, member, 2));
  }
  EXPECT_EQ(available_cpus(), cpus);  // the caller may run on the same CPUs as before
}

// With more members than processors, the kernel distributes them better than fixed shares would.
TEST(ThreadShare, LeavesMoreMembersThanProcessorsFree) {
  const std::vector<int> cpus = available_cpus();
  detail::ThreadTeam team(std::vector<std::string>(cpus.size() + 1, "member"));
  detail::keep_members_apart(team, std::vector<int>(team.size(), 1));
  team.run([&](std::size_t) { EXPECT_EQ(available_cpus(), cpus); });
}

// Threads that meet at barriers would spin on too few processors.
TEST(ThreadShare, LeavesMembersWithMoreThreadsThanTheirShareFree) {
  const std::vector<int> cpus = available_cpus();
  detail::ThreadTeam team({"first", "second"});
  detail::keep_members_apart(team, {1, static_cast<int>(cpus.size())});
  team.run([&](std::size_t) {
    if (cpus.size() > 1) {
      EXPECT_EQ(available_cpus(), cpus);
    }
  });
}

TEST(ThreadShare, OfACallerIsOneThreadForAWhile) {
  at::set_num_threads(3);
  {
    const SingleThreadScope alone;
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
}

std::set<std::string> threads_of_process() {
  std::set<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path().filename().string());
  }
  return threads;
}

// The kernel lists a thread until shortly after it has ended.
bool end_soon(const std::set<std::string>& threads) {
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(10);
  while (Clock::now() < limit) {
    const std::set<std::string> present = threads_of_process();
    if (std::ranges::none_of(threads, [&](const auto& each) { return present.contains(each); })) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

TEST(ThreadShare, HelpingThreadsEndWhenReleasedAndComeBack) {
  if (dlsym(RTLD_DEFAULT, "omp_pause_resource_all") == nullptr) {
    GTEST_SKIP() << "the OpenMP library is older than OpenMP 5.0";
  }
  at::set_num_threads(3);
  const torch::Tensor large = torch::ones({1 << 20});
  detail::release_helping_threads();
  for (int time = 0; time < 2; ++time) {
    const std::set<std::string> before = threads_of_process();
    large.add_(1);
    std::set<std::string> helpers = threads_of_process();
    std::erase_if(helpers, [&](const auto& each) { return before.contains(each); });
    EXPECT_EQ(helpers.size(), 2U);
    detail::release_helping_threads();
    EXPECT_TRUE(end_soon(helpers));
    EXPECT_EQ(at::get_num_threads(), 3) << "the number stays";
  }
  EXPECT_TRUE(large.equal(torch::full({1 << 20}, 3.0F)));
}

TEST(ThreadShare, NeedsANumberForEachMemberToKeepThemApart) {
  detail::ThreadTeam team({"first", "second"});
  EXPECT_THROW(detail::keep_members_apart(team, {1}), InternalError);
  EXPECT_THROW(detail::keep_members_apart(team, {1, 1, 1}), InternalError);
  EXPECT_THROW(detail::set_threads_of_members(team, {1, 1, 1}), InternalError);
}

TEST(ThreadShare, IsAtLeastOneThread) {
  at::set_num_threads(2);
  detail::ThreadTeam team({"a", "b"});
  detail::set_threads_of_members(team, {0, 3});
  std::vector<int> seen(2, 0);
  team.run([&](std::size_t member) { seen[member] = at::get_num_threads(); });
  EXPECT_THAT(seen, ElementsAre(1, 3));
  EXPECT_EQ(at::get_num_threads(), 2);
}

}  // namespace
}  // namespace lockstep
