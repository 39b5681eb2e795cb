// The executor with toy stages: numbers pass through, and every result depends on the order of the
// micro-batches.
#include <lockstep/parallel/pipeline/schedule/executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/pipeline/run_workers.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/parallel/pipeline/schedule/mailboxes.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <tests/parallel/pipeline/random_table.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using testing_support::random_table;

using Number = std::uint64_t;

Number forward_of(int stage, Number x) { return 31 * x + static_cast<Number>(stage) + 1; }
Number backward_of(int stage, Number x, Number gradient) {
  return 17 * gradient + x + static_cast<Number>(stage);
}
Number added(Number sum, Number x, Number gradient) { return 7 * sum + (x ^ gradient); }
Number input_of(int micro_batch) { return 1000 + static_cast<Number>(micro_batch); }

struct Results {
  explicit Results(const Table& table)
      : weights(static_cast<std::size_t>(table.stages())),
        losses(static_cast<std::size_t>(table.micro_batches)) {}
  std::vector<Number> weights;  // one per stage
  std::vector<Number> losses;   // one per micro-batch
  friend bool operator==(const Results&, const Results&) = default;
};

// The results of one worker that processes the micro-batches one after the other.
Results expected_of(const Table& table) {
  Results results(table);
  for (int i = 0; i < table.micro_batches; ++i) {
    std::vector<Number> inputs{input_of(i)};
    for (int s = 0; s < table.stages(); ++s) inputs.push_back(forward_of(s, inputs.back()));
    results.losses[static_cast<std::size_t>(i)] = inputs.back();
    Number gradient = inputs.back();
    for (int s = table.stages() - 1; s >= 0; --s) {
      const auto place = static_cast<std::size_t>(s);
      results.weights[place] = added(results.weights[place], inputs[place], gradient);
      gradient = backward_of(s, inputs[place], gradient);
    }
  }
  return results;
}

class Toy {
 public:
  Toy(const Table& table, int worker, Mailboxes<Number>& mailboxes, Results& results)
      : table_(table), worker_(worker), mailboxes_(mailboxes), results_(results) {}

  void perform(const Action& action) {
    const auto [kind, stage, i] = action;
    const auto s = static_cast<std::size_t>(stage);
    const bool last = stage + 1 == table_.stages();
    switch (kind) {
      case Kind::kForward: {
        const Number x = stage == 0 ? input_of(i) : take({Kind::kReceiveForward, stage, i});
        inputs_[{Kind::kForward, stage, i}] = x;
        const Number y = forward_of(stage, x);
        if (last) {
          results_.losses[static_cast<std::size_t>(i)] = y;
        } else {
          give({Kind::kSendForward, stage, i}, y);
        }
        return;
      }
      case Kind::kBackward:
      case Kind::kBackwardInput: {
        const Number gradient = last ? results_.losses[static_cast<std::size_t>(i)]
                                     : take({Kind::kReceiveBackward, stage, i});
        const Number x = inputs_.at({Kind::kForward, stage, i});
        gradients_[{Kind::kForward, stage, i}] = gradient;
        if (stage > 0) give({Kind::kSendBackward, stage, i}, backward_of(stage, x, gradient));
        if (kind == Kind::kBackwardInput) return;
        [[fallthrough]];
      }
      case Kind::kBackwardWeight:
        results_.weights[s] = added(results_.weights[s], inputs_.at({Kind::kForward, stage, i}),
                                    gradients_.at({Kind::kForward, stage, i}));
        return;
      case Kind::kSendForward:
      case Kind::kSendBackward:
        return mailboxes_.send(worker_, worker_of(receive_of(action).stage), take(action));
      case Kind::kReceiveForward:
        messages_[action] = mailboxes_.receive(worker_of(stage - 1), worker_);
        return;
      case Kind::kReceiveBackward:
        messages_[action] = mailboxes_.receive(worker_of(stage + 1), worker_);
        return;
      case Kind::kReduce:
        return;
    }
  }

 private:
  int worker_of(int stage) const { return table_.worker_of[static_cast<std::size_t>(stage)]; }
  void give(const Action& send, Number number) {
    const Action receive = receive_of(send);
    messages_[worker_of(receive.stage) == worker_ ? receive : send] = number;
  }
  Number take(const Action& action) {
    const auto found = messages_.find(action);
    LOCKSTEP_CHECK(found != messages_.end(), text(action), " has nothing");
    const Number number = found->second;
    messages_.erase(found);
    return number;
  }

  const Table& table_;
  const int worker_;
  Mailboxes<Number>& mailboxes_;
  Results& results_;
  std::map<Action, Number> inputs_, gradients_, messages_;
};

std::vector<std::string> names_of_workers(int workers) {
  std::vector<std::string> names;
  for (int w = 0; w < workers; ++w) names.push_back(str("worker ", w));
  return names;
}

// Runs one step on threads. `before` is called before each action.
Results run(
    const Table& table, lockstep::detail::ThreadTeam& threads, Mailboxes<Number>& mailboxes,
    Timeline* timeline = nullptr, const Perform& before = [](const Action&) {}) {
  Results results(table);
  StepFailure failure;
  std::vector<Recording> recordings(table.workers.size());
  mailboxes.reset();
  threads.run([&](std::size_t w) {
    const int worker = static_cast<int>(w);
    Toy toy(table, worker, mailboxes, results);
    auto failed = execute(
        table.workers[w],
        [&](const Action& action) {
          mailboxes.check();
          before(action);
          toy.perform(action);
        },
        recordings[w]);
    if (!failed) return;
    failure.keep(worker, std::move(*failed));
    mailboxes.abort();
  });
  if (timeline) *timeline = timeline_of(table.workers, recordings);
  failure.check(table);
  return results;
}

TEST(PipelineExecutor, GivesTheSameForAllSchedules) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    for (const int workers : {1, 2, 3}) {
      lockstep::detail::ThreadTeam threads(names_of_workers(workers));
      Mailboxes<Number> mailboxes(workers, std::chrono::seconds(30));
      for (const int micro_batches : {1, 2, 7}) {
        const Table plain = schedule_of(name, workers, micro_batches);
        const Results expected = expected_of(plain);
        for (const Table& table : {plain, with_whole_backward(plain, 0), with_reductions(plain)}) {
          EXPECT_EQ(run(with_messages(table), threads, mailboxes), expected)
              << name << ' ' << workers << ' ' << micro_batches;
        }
      }
    }
  }
}

TEST(PipelineExecutor, GivesTheSameForRandomTables) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const int workers = 1 + static_cast<int>(random() % 4);
    const int stages = workers + static_cast<int>(random() % 4);
    const Table table =
        with_messages(random_table(random, workers, stages, 1 + static_cast<int>(random() % 6)));
    ASSERT_NO_THROW(check(table)) << csv(table);
    lockstep::detail::ThreadTeam threads(names_of_workers(workers));
    Mailboxes<Number> mailboxes(workers, std::chrono::seconds(30));
    EXPECT_EQ(run(table, threads, mailboxes), expected_of(table)) << csv(table);
  }
}

// A schedule with up to 8 stages and 32 micro-batches. Some of its stages do not split their
// backward.
Table random_schedule(const char* name, std::mt19937& random) {
  const bool two = std::string_view(name) == "interleaved" || std::string_view(name) == "zbv";
  const int workers = 1 + static_cast<int>(random() % (two ? 4 : 8));
  Table table = schedule_of(name, workers, 1 + static_cast<int>(random() % 32));
  if (random() % 2 == 0) {
    const auto stages = static_cast<std::mt19937::result_type>(table.stages());
    table = with_whole_backward(table, static_cast<int>(random() % stages));
  }
  return random() % 2 == 0 ? with_messages(with_reductions(table)) : with_messages(table);
}

TEST(PipelineExecutor, GivesTheSameForSchedulesOfAnySize) {
  std::mt19937 random(23);
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    for (int trial = 0; trial < 12; ++trial) {
      const Table table = random_schedule(name, random);
      ASSERT_LE(table.stages(), 8);
      ASSERT_NO_THROW(check(table)) << csv(table);
      const int workers = static_cast<int>(table.workers.size());
      lockstep::detail::ThreadTeam threads(names_of_workers(workers));
      Mailboxes<Number> mailboxes(workers, std::chrono::seconds(30));
      EXPECT_EQ(run(table, threads, mailboxes), expected_of(table)) << csv(table);
    }
  }
}

TEST(PipelineExecutor, GivesTheSameForLargeRandomTables) {
  std::mt19937 random(29);
  for (int trial = 0; trial < 4; ++trial) {
    const int workers = 2 + static_cast<int>(random() % 3);
    const Table table =
        with_messages(random_table(random, workers, 8, 29 + static_cast<int>(random() % 4)));
    ASSERT_NO_THROW(check(table)) << csv(table);
    lockstep::detail::ThreadTeam threads(names_of_workers(workers));
    Mailboxes<Number> mailboxes(workers, std::chrono::seconds(30));
    EXPECT_EQ(run(table, threads, mailboxes), expected_of(table)) << csv(table);
  }
}

// One team runs all steps. In some steps, a worker fails at a random one of its actions.
TEST(PipelineExecutor, RunsAThousandStepsOfWhichSomeFail) {
  constexpr int kWorkers = 3;
  lockstep::detail::ThreadTeam threads(names_of_workers(kWorkers));
  Mailboxes<Number> mailboxes(kWorkers, std::chrono::seconds(30));
  std::vector<Table> tables;
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    tables.push_back(with_messages(schedule_of(name, kWorkers, 4)));
  }
  std::mt19937 random(31);
  for (int step = 0; step < 1000; ++step) {
    const Table& table = tables[random() % tables.size()];
    if (step % 20 != 0) {
      ASSERT_EQ(run(table, threads, mailboxes), expected_of(table)) << step;
      continue;
    }
    const auto& line = table.workers[random() % kWorkers];
    const Action failing = line[random() % line.size()];
    const auto message = message_of<DataError>([&] {
      run(table, threads, mailboxes, nullptr, [&](const Action& action) {
        if (action == failing) throw DataError("the file is gone");
      });
    });
    ASSERT_THAT(message, HasSubstr(str(" at ", text(failing), ": the file is gone"))) << step;
  }
}

TEST(PipelineExecutor, GivesTheSameForATableOfTheUser) {
  const Table table =
      with_messages(table_of("0F0,2F0,0F1,2F1,2I1,2I0,2W0,0B0,2W1,0B1\n1F0,1F1,1B0,1B1\n", "mine"));
  // The gradient of micro-batch 1 arrives first, but 1B1 is scheduled after 1B0.
  EXPECT_NO_THROW(check(table));
  lockstep::detail::ThreadTeam threads(names_of_workers(2));
  Mailboxes<Number> mailboxes(2, std::chrono::seconds(30));
  EXPECT_EQ(run(table, threads, mailboxes), expected_of(table));
}

TEST(PipelineExecutor, RecordsWhatEachWorkerDid) {
  const Table table = with_messages(one_forward_one_backward(2, 4));
  lockstep::detail::ThreadTeam threads(names_of_workers(2));
  Mailboxes<Number> mailboxes(2, std::chrono::seconds(30));
  Timeline timeline;
  run(table, threads, mailboxes, &timeline);
  ASSERT_EQ(timeline.workers.size(), 2U);
  for (std::size_t w = 0; w < 2; ++w) {
    ASSERT_EQ(timeline.workers[w].size(), table.workers[w].size());
    double now = 0;
    for (std::size_t i = 0; i < table.workers[w].size(); ++i) {
      const Interval& each = timeline.workers[w][i];
      EXPECT_EQ(each.action, table.workers[w][i]);
      EXPECT_LE(now, each.begin);
      EXPECT_LE(each.begin, each.end);
      now = each.end;
    }
    EXPECT_LE(now, timeline.end);
  }
  // Without the waits, the step takes at most as long.
  EXPECT_LE(replay(table, costs_of(timeline)).end, timeline.end * (1 + 1e-9));
}

// Each action begins when the one before it has ended.
TEST(PipelineExecutor, RecordsASpanForEachActionOfARecording) {
  const std::vector<Action> actions = {action_of("1RECV_F3"), action_of("1F3"), action_of("1I3"),
                                       action_of("1REDUCE_GRAD")};
  const Perform until_the_clock_advances = [](const Action&) {
    for (const auto begin = Clock::now(); Clock::now() == begin;) continue;
  };
  Recording recording;
  EXPECT_FALSE(execute(actions, until_the_clock_advances, recording));
  start_recording();
  EXPECT_FALSE(execute(actions, until_the_clock_advances, recording));
  const std::vector<Span> spans = stop_recording(Clock::time_point::min());
  ASSERT_EQ(recording.times.size(), 5U) << "of the second execution alone";
  ASSERT_EQ(spans.size(), 4U);
  const std::vector<const char*> categories = {"message", "forward", "backward", "reduction"};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].name, text(actions[i]));
    EXPECT_EQ(spans[i].category, categories[i]);
    EXPECT_EQ(spans[i].begin, recording.times[i]) << spans[i].name;
    EXPECT_EQ(spans[i].end, recording.times[i + 1]) << spans[i].name;
    EXPECT_LT(spans[i].begin, spans[i].end) << spans[i].name;
  }
}

TEST(PipelineExecutor, StopsAtTheActionThatFails) {
  const std::vector<Action> actions = {action_of("0F0"), action_of("0F1"), action_of("0B0")};
  std::vector<std::string> performed;
  Recording recording;
  start_recording();
  const std::optional<FailedAction> failed = execute(
      actions,
      [&](const Action& action) {
        performed.push_back(text(action));
        if (performed.size() == 2) throw DataError("the file is gone");
      },
      recording);
  const std::vector<Span> spans = stop_recording(Clock::time_point::min());
  ASSERT_TRUE(failed);
  EXPECT_EQ(text(failed->action), "0F1");
  EXPECT_THROW(std::rethrow_exception(failed->error), DataError);
  EXPECT_EQ(performed, (std::vector<std::string>{"0F0", "0F1"}));
  EXPECT_EQ(recording.times.size(), 2U);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, "0F0");
}

// The step begins with the first action of any worker. A worker that failed has fewer times.
TEST(PipelineExecutor, CountsFromTheFirstActionOfAnyWorker) {
  const auto at = [](int milliseconds) {
    return Clock::time_point(std::chrono::milliseconds(1000 + milliseconds));
  };
  const std::vector<std::vector<Action>> actions = {{action_of("0F0"), action_of("0B0")},
                                                    {action_of("1F0"), action_of("1B0")},
                                                    {action_of("2F0")}};
  const std::vector<Recording> recordings = {
      {.times = {at(250), at(750)}}, {.times = {at(0), at(125), at(500)}}, {}};
  const Timeline timeline = timeline_of(actions, recordings);
  ASSERT_EQ(timeline.workers.size(), 3U);
  ASSERT_EQ(timeline.workers[0].size(), 1U);
  EXPECT_EQ(timeline.workers[0][0].action, actions[0][0]);
  EXPECT_EQ(timeline.workers[0][0].begin, 0.25);
  EXPECT_EQ(timeline.workers[0][0].end, 0.75);
  ASSERT_EQ(timeline.workers[1].size(), 2U);
  EXPECT_EQ(timeline.workers[1][0].begin, 0);
  EXPECT_EQ(timeline.workers[1][0].end, 0.125);
  EXPECT_EQ(timeline.workers[1][1].action, actions[1][1]);
  EXPECT_EQ(timeline.workers[1][1].begin, 0.125);
  EXPECT_EQ(timeline.workers[1][1].end, 0.5);
  EXPECT_TRUE(timeline.workers[2].empty());
  EXPECT_EQ(timeline.end, 0.75);
}

TEST(PipelineExecutor, ReportsTheFirstFailureOnly) {
  StepFailure failure;
  const auto keep = [&](int worker, const std::exception_ptr& error) {
    failure.keep(worker, {{Kind::kForward, worker, 3}, error});
  };
  keep(0, std::make_exception_ptr(StepAborted("another worker")));
  keep(2, std::make_exception_ptr(DataError("first")));
  keep(1, std::make_exception_ptr(CommError("second")));
  EXPECT_EQ(message_of<DataError>([&] { failure.check(gpipe(3, 4)); }),
            "pipeline gpipe: worker 2 failed in stage 2 at 2F3: first");
}

// Whichever action fails, the other workers stop promptly, the error names the action, and the next
// step succeeds.
TEST(PipelineExecutorFailures, EndTheStep) {
  const Table table = with_messages(zero_bubble_h1(3, 5));
  lockstep::detail::ThreadTeam threads(names_of_workers(3));
  Mailboxes<Number> mailboxes(3, std::chrono::seconds(30));
  for (const char* name : {"0F0", "0F4", "1RECV_F2", "1I3", "2W4", "2SEND_B1", "0W4"}) {
    const Action failing = action_of(name);
    const Clock::time_point start = Clock::now();
    const auto message = message_of<DataError>([&] {
      run(table, threads, mailboxes, nullptr, [&](const Action& action) {
        if (action == failing) throw DataError("the file is gone");
      });
    });
    EXPECT_LT(seconds_since(start), 2);
    EXPECT_EQ(message, str("pipeline zb-h1: worker ", failing.stage, " failed in stage ",
                           failing.stage, " at ", name, ": the file is gone"));
    EXPECT_EQ(run(table, threads, mailboxes), expected_of(table));
  }
}

TEST(PipelineExecutor, KeepsTheTypeOfAnErrorAndTheOriginal) {
  const Table table = gpipe(1, 1);
  const auto failing_with = [&](auto error) {
    StepFailure failure;
    failure.keep(0, {{Kind::kForward, 0, 0}, std::make_exception_ptr(error)});
    failure.check(table);
  };
  EXPECT_THROW(failing_with(TimeoutError("late")), TimeoutError);
  EXPECT_THROW(failing_with(CommError("gone")), CommError);
  EXPECT_THROW(failing_with(ConfigError("wrong")), ConfigError);
  EXPECT_THROW(failing_with(CheckpointError("torn")), CheckpointError);
  EXPECT_THROW(failing_with(InternalError("broken")), InternalError);
  EXPECT_THAT(message_of<Error>([&] { failing_with(3); }),
              HasSubstr("not derived from std::exception"));
  EXPECT_NO_THROW(failing_with(StepAborted("another worker")));
  try {
    failing_with(std::out_of_range("beyond"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker 0 failed in stage 0 at 0F0: beyond"));
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

// Otherwise worker 0 would wait until its deadline.
TEST(PipelineWorkerFailures, EndTheWaitsOfTheOthers) {
  lockstep::detail::ThreadTeam team({"worker 0", "worker 1"});
  Mailboxes<int> mailboxes(2, std::chrono::seconds(60));
  bool ended_by_other = false;
  const Clock::time_point start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] {
                run_workers(team, mailboxes, [&](std::size_t worker) {
                  if (worker == 1) throw std::runtime_error("the device is gone");
                  try {
                    mailboxes.receive(1, 0);
                  } catch (const StepAborted&) {
                    ended_by_other = true;
                  }
                });
              }),
              HasSubstr("worker 1: the device is gone"));
  EXPECT_TRUE(ended_by_other);
  EXPECT_LT(seconds_since(start), 2);
}

TEST(PipelineMailboxes, KeepTheOrderOfEachPair) {
  Mailboxes<std::unique_ptr<int>> mailboxes(3, std::chrono::seconds(30));
  for (int i = 0; i < 3; ++i) {
    mailboxes.send(0, 2, std::make_unique<int>(i));
    mailboxes.send(1, 2, std::make_unique<int>(10 + i));
  }
  EXPECT_EQ(*mailboxes.receive(1, 2), 10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*mailboxes.receive(0, 2), i);
  EXPECT_EQ(*mailboxes.receive(1, 2), 11);
}

TEST(PipelineMailboxes, WaitNoLongerThanTheirDeadline) {
  Mailboxes<int> mailboxes(2, Milliseconds(20));
  EXPECT_THAT(message_of<TimeoutError>([&] { mailboxes.receive(0, 1); }),
              HasSubstr("waited 20 ms for a message of worker 0"));
}

TEST(PipelineMailboxes, AnAbortWakesWhoWaitsAndAResetForgetsIt) {
  Mailboxes<int> mailboxes(2, std::chrono::seconds(30));
  std::atomic<bool> aborted = false;
  std::thread receiver([&] {
    EXPECT_THROW(mailboxes.receive(0, 1), StepAborted);
    EXPECT_TRUE(aborted);
  });
  aborted = true;
  mailboxes.abort();
  receiver.join();
  mailboxes.send(0, 1, 1);
  EXPECT_THROW(mailboxes.receive(0, 1), StepAborted);
  mailboxes.reset();
  mailboxes.send(0, 1, 2);
  EXPECT_EQ(mailboxes.receive(0, 1), 2);
}

}  // namespace
}  // namespace lockstep::pipeline
