#include <lockstep/parallel/thread_share.h>

#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(ThreadShare, GivesTheFirstMembersWhatIsLeft) {
  EXPECT_THAT(divided_threads(4, 2), ElementsAre(2, 2));
  EXPECT_THAT(divided_threads(5, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(divided_threads(1, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(divided_threads(7, 1), ElementsAre(7));
}

TEST(ThreadShare, IsTheMembersOwn) {
  at::set_num_threads(3);
  ThreadTeam team({"a", "b"});
  set_threads_of_members(team, {2, 1});
  std::vector<int> seen(2, 0);
  team.run([&](std::size_t member) { seen[member] = at::get_num_threads(); });
  EXPECT_THAT(seen, ElementsAre(2, 1));
  EXPECT_EQ(at::get_num_threads(), 3);
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, 3);
  EXPECT_THROW(set_threads_of_members(team, {1}), InternalError);
}

TEST(ThreadShare, OfACallerIsOneThreadForAWhile) {
  at::set_num_threads(3);
  {
    const SingleThreadScope alone;
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
}

}  // namespace
}  // namespace lockstep
