// Gloo through Lockstep's adapter: its results, and every rank's error when a rank dies, stops,
// leaves or ends the group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <latch>

#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo_groups.h>
#include <tests/support/moment.h>
#include <tests/support/process_usage.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::Caller;
using testing_support::connect_gloo;
using testing_support::connect_store;
using testing_support::Moment;
using testing_support::no_errors;
using testing_support::run_gloo_processes;
using testing_support::run_gloo_threads;
using testing_support::run_threads;

TEST(Gloo, ReducesEveryTypeWithEveryOperation) {
  const auto errors = run_gloo_threads(3, [](Caller& caller) {
    for (const std::int64_t count : {0, 1, 37}) check_reductions(caller, count);
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(Gloo, MovesEveryTypeToEveryRank) {
  const auto errors = run_gloo_threads(3, [](Caller& caller) {
    for (const auto type : {torch::kFloat32, torch::kInt16, torch::kBool, torch::kComplexDouble}) {
      if (type == torch::kBool) continue;  // products of bools are not bools
      for (const std::int64_t count : {1, 1000}) {
        if (type != torch::kComplexDouble) check_moves(caller, count, type);
      }
    }
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(Gloo, NotANumberWinsInMinAndMax) {
  const auto errors = run_gloo_threads(3, [](Caller& caller) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      auto tensor = torch::full({4}, caller.rank == 1 ? NAN : 1.0F);
      caller.all_reduce(tensor, op);
      if (!tensor.isnan().all().item<bool>()) throw Error("lost");
    }
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(Gloo, SendsAndReceives) {
  const auto errors = run_gloo_threads(3, [](Caller& caller) {
    for (const std::int64_t count : {0, 1, 300000})
      check_messages(caller, count, /*any_source=*/true);
  });
  EXPECT_EQ(errors, no_errors(3));
}

// A rank may wait for its messages in any order and must not wait for messages that are sent later.
TEST(Gloo, AMessageIsCompleteBeforeAnOlderOne) {
  std::latch first_seen(2);
  const auto errors = run_gloo_threads(2, [&](Caller& caller) {
    auto first = torch::zeros({4});
    auto second = torch::zeros({4});
    if (caller.rank == 0) {
      auto late = caller.backend->recv(first, 1, 1);
      auto early = caller.backend->recv(second, 1, 2);
      EXPECT_FALSE(late->is_completed());
      while (!early->is_completed()) std::this_thread::yield();
      EXPECT_EQ(early->source_rank(), 1);
      EXPECT_FALSE(late->is_completed());
      first_seen.count_down();
      late->wait();
      EXPECT_EQ(late->error(), nullptr);
    } else {
      caller.backend->send(second, 0, 2);  // dropping the handle does not cancel the message
      first_seen.arrive_and_wait();
      caller.backend->send(first, 0, 1)->wait();
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(Gloo, AnAbortEndsEveryKindOfWait) {
  std::latch waiting(4);
  const auto errors = run_gloo_threads(4, [&](Caller& caller) {
    auto tensor = torch::ones({4});
    if (caller.rank == 3) {
      waiting.arrive_and_wait();
      caller.backend->abort("the loss is not a number");
      caller.backend->abort("a second reason");
      EXPECT_THROW(caller.backend->check(), CommError);
      return;
    }
    const auto work = caller.rank == 0   ? caller.start(CallKind::kAllReduce, {}, tensor)
                      : caller.rank == 1 ? caller.backend->recv(tensor, 3, 0)
                                         : caller.backend->recv(tensor, std::nullopt, 0);
    waiting.count_down();
    const auto start = Clock::now();
    EXPECT_THROW(work->wait(), CommError);
    EXPECT_LT(seconds_since(start), 10);
    EXPECT_TRUE(work->is_completed());
    EXPECT_NE(work->error(), nullptr);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)],
              "rank 3 ended the group: the loss is not a number");
  }
  EXPECT_EQ(errors[3], "the loss is not a number");
}

TEST(Gloo, PollingSeesAnAbort) {
  const auto errors = run_gloo_threads(2, [&](Caller& caller) {
    auto tensor = torch::ones({4});
    if (caller.rank == 1) return caller.backend->abort("enough");
    auto work = caller.backend->recv(tensor, 1, 0);
    while (!work->is_completed()) std::this_thread::yield();
    EXPECT_NE(work->error(), nullptr);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the group: enough"));
}

TEST(Gloo, ALeavingRankIsNamed) {
  const auto errors = run_gloo_threads(3, [&](Caller& caller) {
    auto tensor = torch::ones({4});
    caller.barrier();
    if (caller.rank == 2) throw Error("gone");
    caller.all_reduce(tensor);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 left the group while rank "));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 left the group while rank "));
  EXPECT_THAT(errors[0], HasSubstr("all_reduce[float32, 4] (operation 1)"));
}

TEST(GlooDeadline, ADeadlineNamesWhoDidNotComeAndWhatItDid) {
  std::latch seen(2);
  const auto errors = run_gloo_threads(
      2,
      [&](Caller& caller) {
        auto tensor = torch::ones({4});
        caller.all_reduce(tensor);
        if (caller.rank == 1) return seen.arrive_and_wait();
        try {
          caller.all_reduce(tensor, ReduceOp::kMax);
        } catch (const TimeoutError& error) {
          seen.count_down();
          throw;
        }
      },
      seconds(1));
  EXPECT_THAT(errors[0],
              HasSubstr("rank 0 waited 1 s in all_reduce[float32, 4, max] (operation 1) over "
                        "gloo for rank 1; rank 1 last completed all_reduce[float32, 4] "
                        "(operation 0)"));
}

TEST(Gloo, AThousandGroupsLeaveNothing) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto round = [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int first,
                        int count) {
    for (int i = first; i < first + count; ++i) {
      Caller caller(connect_gloo(store, str("group", i), rank, 2, seconds(30)), rank, 2);
      caller.barrier();
    }
  };
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  std::int64_t keys = 0;
  std::latch warm(2), done(2);
  const auto errors = run_threads(2, [&](int rank) {
    const auto store = connect_store(rank, fd);
    round(store, rank, 0, 10);
    warm.arrive_and_wait();
    if (rank == 0) {
      threads = testing_support::thread_count();
      descriptors = testing_support::descriptor_count();
      keys = store->getNumKeys();
    }
    round(store, rank, 10, 990);
    done.arrive_and_wait();
    if (rank == 0) {
      EXPECT_LE(testing_support::thread_count(), threads + 2);
      EXPECT_LE(testing_support::descriptor_count(), descriptors + 2);
      EXPECT_LE(store->getNumKeys(), keys + 10);
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Processes that die --------------------------------------------------------------------------

struct Death {
  const char* name;
  int rank;
  std::int64_t count;  // elements of the all_reduce
  const char* text;
};

class Deaths : public testing::TestWithParam<Death> {};
INSTANTIATE_TEST_SUITE_P(
    Gloo, Deaths,
    testing::Values(Death{"InASmallSum", 2, 4, "rank 2 died (no sign of life for"},
                    Death{"InALargeSum", 2, 8 << 20, "rank 2 died (no sign of life for"},
                    Death{"OfTheStore", 0, 4, "rank 0 died or left the group (its store is gone)"},
                    Death{"OfTheStoreInALargeSum", 0, 8 << 20,
                          "rank 0 died or left the group (its store is gone)"}),
    [](const auto& info) { return info.param.name; });

TEST_P(Deaths, AreNamedByEveryOtherRankWithinTwoSeconds) {
  const Death death = GetParam();
  Moment killed;
  const auto errors = run_gloo_processes(
      4,
      [&](Caller& caller) {
        auto tensor = torch::ones({death.count});
        caller.all_reduce(tensor);
        if (caller.rank == death.rank) {
          std::thread([&] {
            // Die in the middle of one of the operations of the loop below.
            std::this_thread::sleep_for(milliseconds(100));
            killed.mark();
            raise(SIGKILL);
          }).detach();
        }
        try {
          for (;;) caller.all_reduce(tensor);
        } catch (const CommError& error) {
          throw CommError(str(error.what(), killed.seconds_ago() < 2 ? " in time" : " late"));
        }
      },
      seconds(30), seconds(20));
  for (int rank = 0; rank < 4; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    if (rank == death.rank) {
      EXPECT_EQ(error, "killed by signal 9");
    } else {
      EXPECT_THAT(error, AllOf(HasSubstr(death.text), HasSubstr("was in all_reduce[float32, "),
                               HasSubstr(" in time")));
    }
  }
}

// Rank 0 waits for rank 1, which computes, so no operation of rank 0 fails.
TEST(GlooDeath, ADeathIsNamedWhereNoOperationFails) {
  Moment killed;
  const auto errors = run_gloo_processes(
      3,
      [&](Caller& caller) {
        caller.barrier();
        if (caller.rank == 2) {
          killed.mark();
          raise(SIGKILL);
        }
        if (caller.rank == 1) {
          while (true) pause();
        }
        auto tensor = torch::ones({4});
        try {
          caller.backend->recv(tensor, 1, 0)->wait();
        } catch (const CommError& error) {
          throw CommError(str(error.what(), killed.seconds_ago() < 2 ? " in time" : " late"));
        }
      },
      seconds(30), seconds(4));
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 2 died (no sign of life for "), HasSubstr(" in time")));
}

class Stops : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gloo, Stops, testing::Values(0, 1));

TEST_P(Stops, EndAtTheDeadlineWithTheNameOfTheStoppedRank) {
  const int stopped = GetParam();
  const auto errors = run_gloo_processes(
      3,
      [&](Caller& caller) {
        auto tensor = torch::ones({1000});
        caller.all_reduce(tensor);
        if (caller.rank == stopped) raise(SIGSTOP);
        try {
          caller.all_reduce(tensor);
        } catch (const TimeoutError& error) {
          throw Error(str("TimeoutError: ", error.what()));
        }
      },
      seconds(2), seconds(6));
  for (int rank = 0; rank < 3; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    if (rank == stopped) {
      EXPECT_EQ(error, "ran longer than its limit");
    } else {
      EXPECT_THAT(error,
                  AllOf(HasSubstr("TimeoutError: "), HasSubstr(str("for rank ", stopped, "; ")),
                        HasSubstr("all_reduce[float32, 1000] (operation 1)"),
                        HasSubstr("has been silent for")));
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
