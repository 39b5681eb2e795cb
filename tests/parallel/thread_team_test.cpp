#include <lockstep/parallel/base/thread_team.h>

#include <condition_variable>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::Each;
using testing_support::message_of;

std::vector<std::string> three_names() { return {"a", "b", "c"}; }

// Blocks until `expected` threads have arrived.
class Meeting {
 public:
  void wait_for(int expected) {
    std::unique_lock lock(mutex_);
    ++here_;
    all_here_.notify_all();
    all_here_.wait(lock, [&] { return here_ >= expected; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0;
};

TEST(ThreadTeam, CallsTheTaskOnAllMembersAtOnce) {
  detail::ThreadTeam team(three_names());
  EXPECT_EQ(team.size(), 3U);
  Meeting meeting;
  std::vector<int> calls(3, 0);
  team.run([&](std::size_t member) {
    meeting.wait_for(3);
    ++calls[member];
  });
  EXPECT_THAT(calls, Each(1));
}

TEST(ThreadTeam, KeepsItsThreads) {
  detail::ThreadTeam team(three_names());
  std::vector<std::set<std::thread::id>> ids(3);
  for (int i = 0; i < 50; ++i) {
    team.run([&](std::size_t member) { ids[member].insert(std::this_thread::get_id()); });
  }
  std::set<std::thread::id> all{std::this_thread::get_id()};
  for (const auto& of_member : ids) {
    EXPECT_EQ(of_member.size(), 1U);
    all.insert(of_member.begin(), of_member.end());
  }
  EXPECT_EQ(all.size(), 4U);
}

TEST(ThreadTeam, NamesTheFirstThatFailsWhenAllHaveEnded) {
  detail::ThreadTeam team(three_names());
  std::vector<int> ended(3, 0);
  const auto fail = [&](std::size_t member) {
    ++ended[member];
    if (member > 0) throw std::runtime_error(str("no. ", member, "\nand a backtrace"));
  };
  EXPECT_EQ(message_of<Error>([&] { team.run(fail); }), "b: no. 1");
  EXPECT_THAT(ended, Each(1));
  team.run([&](std::size_t member) { ++ended[member]; });
  EXPECT_THAT(ended, Each(2));
}

TEST(ThreadTeam, KeepsConfigErrorsAndTakesAnythingElse) {
  detail::ThreadTeam team(three_names());
  EXPECT_EQ(message_of<ConfigError>([&] {
              team.run([](std::size_t member) {
                if (member == 2) throw ConfigError("wrong");
              });
            }),
            "c: wrong");
  EXPECT_EQ(message_of<Error>([&] {
              team.run([](std::size_t member) {
                if (member == 0) throw 7;
              });
            }),
            "a: an exception not derived from std::exception");
}

TEST(ThreadTeam, RefusesAMemberThatRunsIt) {
  detail::ThreadTeam team(three_names());
  EXPECT_EQ(message_of<ConfigError>([&] {
              team.run([&](std::size_t member) {
                if (member == 1) team.run([](std::size_t) {});
              });
            }),
            "b: a replica or stage called the DataParallel or Pipeline that it belongs to, which "
            "would wait for itself");
  EXPECT_NO_THROW(team.refuse_members());
}

TEST(ThreadTeam, MembersMayRunAnotherTeam) {
  detail::ThreadTeam outer(three_names());
  detail::ThreadTeam inner({"x", "y"});
  std::vector<int> calls(2, 0);
  outer.run([&](std::size_t) { inner.run([&](std::size_t member) { ++calls[member]; }); });
  EXPECT_THAT(calls, Each(3));
}

TEST(ThreadTeam, CallsFromSeveralThreadsFollowEachOther) {
  detail::ThreadTeam team(three_names());
  std::vector<int> calls(3, 0);  // not atomic, so that ThreadSanitizer reports overlapping runs
  int runs = 0;
  std::vector<std::thread> callers;
  std::mutex mutex;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < 300; ++k) {
        team.run([&](std::size_t member) { ++calls[member]; });
        const std::scoped_lock lock(mutex);
        ++runs;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 600);
  EXPECT_THAT(calls, Each(600));
}

TEST(ThreadTeam, RunsAThousandTimesAlsoWhereMembersFail) {
  detail::ThreadTeam team(three_names());
  std::vector<int> calls(3, 0);
  for (int run = 0; run < 1000; ++run) {
    const bool fails = run % 10 == 0;
    const auto task = [&](std::size_t member) {
      ++calls[member];
      if (fails && member == 1) throw std::runtime_error("unlucky");
    };
    if (fails) {
      ASSERT_EQ(message_of<Error>([&] { team.run(task); }), "b: unlucky");
    } else {
      ASSERT_NO_THROW(team.run(task));
    }
  }
  EXPECT_THAT(calls, Each(1000));
}

TEST(ThreadTeam, EndsWithoutARun) {
  for (int i = 0; i < 20; ++i) detail::ThreadTeam team(three_names());
}

// Members spin between short runs and sleep after a pause.
TEST(ThreadTeam, WaitsWithPatience) {
  detail::ThreadTeam team({"a", "b"}, std::chrono::microseconds(200));
  std::vector<int> counts(2, 0);
  for (int run = 0; run < 500; ++run) {
    team.run([&](std::size_t member) { ++counts[member]; });
    if (run % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(counts, (std::vector<int>{500, 500}));
  EXPECT_THROW(team.run([](std::size_t) { throw Error("no"); }), Error);
  team.run([&](std::size_t member) { ++counts[member]; });
  EXPECT_EQ(counts, (std::vector<int>{501, 501}));
}

}  // namespace
}  // namespace lockstep
