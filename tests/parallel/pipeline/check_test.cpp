// The checker on tables with one defect each.
#include <lockstep/parallel/pipeline/schedule/check.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;

std::string error_of(const Table& table) {
  try {
    check(table);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Defect {
  const char* csv;
  const char* message;
};

TEST(PipelineCheck, SaysWhatIsWrong) {
  for (const auto& [csv, message] : {
           Defect{"0F0,0F1,0B0\n",
                  "worker 0: the backward of stage 0 for micro-batch 1 must be whole"},
           Defect{"0F0,0B0,0B1\n", "worker 0: 0B1 needs 0F1 before it, in the same line"},
           Defect{"0B0,0F0\n", "worker 0: 0B0 needs 0F0 before it"},
           Defect{"0F0,0W0,0I0\n", "worker 0: 0W0 needs 0I0 before it"},
           Defect{"0F0,0I0\n", "must be whole, or split"},
           Defect{"0F0,0B0,0I0,0W0\n", "0W0 is out of the order"},
           Defect{"0F0,0F0,0B0\n", "worker 0: 0F0 occurs twice"},
           Defect{"0F1,0F0,0B0,0B1\n", "worker 0: 0F1 is out of the order of the micro-batches"},
           Defect{"0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n", "worker 1: 1REDUCE_GRAD is missing"},
           Defect{"0F0,0F1,0B1,0B0\n", "worker 0: 0B1 is out of the order of the micro-batches"},
           Defect{"0F0,0F1,0B0,0REDUCE_GRAD,0B1\n", "0REDUCE_GRAD stands before the last gradient"},
           Defect{"0F0,0B0\n2F0,2B0\n", "nobody holds stage 1"},
           Defect{"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "worker 1: 1RECV_F0 is missing"},
           Defect{"0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n",
                  "0SEND_F0: stages 0 and 1 are on one worker, where nothing is sent"},
           Defect{"0F0,0B0,0SEND_B0\n", "0SEND_B0 has nobody on the other side"},
           Defect{"0F0,0SEND_F0,0B0\n", "worker 0: 0SEND_F0 has nobody on the other side"},
           Defect{"0F0,0RECV_B0,0B0\n", "worker 0: 0RECV_B0 has nobody on the other side"},
           Defect{"0RECV_F0,0F0,0B0\n", "worker 0: 0RECV_F0 has nobody on the other side"},
       }) {
    EXPECT_THAT(error_of(table_of(csv, "mine")), HasSubstr(message)) << csv;
  }
  EXPECT_THAT(error_of(Table{}), HasSubstr("has 0 micro-batches, 0 stages and 0 workers"));
}

// Tables made by hand may hold any numbers. Each change is made to a correct table of two stages,
// two workers and two micro-batches.
TEST(PipelineCheck, RefusesNumbersThatAreOutOfRange) {
  struct Change {
    std::function<void(Table&)> make;
    const char* message;
  };
  const auto append = [](Action action, std::size_t worker = 1) {
    return [action, worker](Table& table) { table.workers[worker].push_back(action); };
  };
  const Change changes[] = {
      {append({Kind::kForward, 0, 2}, 0), "worker 0: 0F2 names none of the 2 micro-batches"},
      {append({Kind::kForward, 1, 2}), "worker 1: 1F2 names none of the 2 micro-batches"},
      {append({Kind::kForward, 1, -1}), "worker 1: 1F-1 names none of the 2 micro-batches"},
      {append({Kind::kBackward, 1, 2}), "worker 1: 1B2 names none of the 2 micro-batches"},
      {append({Kind::kBackwardInput, 1, 2}), "worker 1: 1I2 names none of the 2 micro-batches"},
      {append({Kind::kBackwardWeight, 1, 2}), "worker 1: 1W2 names none of the 2 micro-batches"},
      {append({Kind::kSendForward, 0, 2}, 0), "0SEND_F2 names none of the 2 micro-batches"},
      {append({Kind::kReceiveForward, 1, 2}), "1RECV_F2 names none of the 2 micro-batches"},
      {append({Kind::kSendBackward, 1, 2}), "1SEND_B2 names none of the 2 micro-batches"},
      {append({Kind::kReceiveBackward, 0, 2}, 0), "0RECV_B2 names none of the 2 micro-batches"},
      {append({Kind::kReduce, 1, 0}), "1REDUCE_GRAD names none of the 2 micro-batches"},
      {append({Kind::kReduce, 1, -2}), "1REDUCE_GRAD names none of the 2 micro-batches"},
      {append({Kind::kForward, 2, 0}), "worker 1: 2F0 names a stage that this worker does not"},
      {append({Kind::kForward, 0, 0}), "worker 1: 0F0 names a stage that this worker does not"},
      {append({Kind::kForward, -1, 0}), "worker 1: -1F0 names a stage that this worker does not"},
      {[](Table& table) { table.micro_batches = 1; },
       "worker 0: 0F1 names none of the 1 micro-batches"},
      {[](Table& table) { table.micro_batches = 3; }, "worker 0: 0F2 is missing"},
      {[](Table& table) { table.micro_batches = 0; }, "has 0 micro-batches, 2 stages"},
      {[](Table& table) { table.worker_of[1] = 2; }, "nobody holds stage 1"},
      {[](Table& table) { table.worker_of[1] = -1; }, "nobody holds stage 1"},
      {[](Table& table) { table.worker_of.push_back(0); }, "worker 0: 2F0 is missing"},
  };
  EXPECT_EQ(error_of(gpipe(2, 2)), "");
  for (const auto& [make, message] : changes) {
    Table table = gpipe(2, 2);
    make(table);
    EXPECT_THAT(error_of(table), HasSubstr(message));
  }
}

TEST(PipelineCheck, NamesWhoWaitsForWhom) {
  const std::string error = error_of(table_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "mine"));
  EXPECT_EQ(
      error,
      "table mine does not come to its end: worker 0 at 0B0 for 1B0; worker 1 at 1F1 for 0F1");
}

TEST(PipelineCheck, RefusesMessagesOutOfOrder) {
  Table table = with_messages(gpipe(2, 2));
  std::vector<Action>& actions = table.workers[1];
  actions = table_of("1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n", "").workers[0];
  EXPECT_THAT(
      error_of(table),
      HasSubstr("worker 1: 1RECV_F1 is out of the order in which worker 0 sends, whose next "
                "is 1RECV_F0"));
}

// A table must be rejected whichever action is removed from it.
TEST(PipelineCheck, RefusesATableWithoutOneOfItsActions) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    const Table whole = with_messages(with_reductions(schedule_of(name, 3, 4)));
    for (std::size_t worker = 0; worker < whole.workers.size(); ++worker) {
      for (std::size_t i = 0; i < whole.workers[worker].size(); ++i) {
        Table table = whole;
        table.workers[worker].erase(table.workers[worker].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(error_of(table), "") << name << ": " << text(whole.workers[worker][i]);
      }
    }
  }
}

// The two ends of a message: the sending worker and the receiving worker.
std::pair<int, int> ends_of(const Table& table, const Action& message) {
  const auto worker_of = [&](int stage) {
    return table.worker_of[static_cast<std::size_t>(stage)];
  };
  switch (message.kind) {
    case Kind::kSendForward:
      return {worker_of(message.stage), worker_of(message.stage + 1)};
    case Kind::kSendBackward:
      return {worker_of(message.stage), worker_of(message.stage - 1)};
    case Kind::kReceiveForward:
      return {worker_of(message.stage - 1), worker_of(message.stage)};
    default:
      return {worker_of(message.stage + 1), worker_of(message.stage)};
  }
}

bool is_send(const Action& action) {
  return action.kind == Kind::kSendForward || action.kind == Kind::kSendBackward;
}

// An edge is a message, with its send and its receive.
TEST(PipelineCheck, RefusesATableWithoutOneOfItsEdges) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    const Table whole = with_messages(schedule_of(name, 3, 4));
    int edges = 0;
    for (const auto& line : whole.workers) {
      for (const Action& send : line) {
        if (!is_send(send)) continue;
        ++edges;
        Table table = whole;
        for (auto& actions : table.workers) {
          std::erase(actions, send);
          std::erase(actions, receive_of(send));
        }
        EXPECT_THAT(error_of(table), HasSubstr(text(send) + " is missing")) << name;
      }
    }
    EXPECT_GT(edges, 0) << name;
  }
}

// Swaps, at one end only, two messages that travel in one direction between two workers. A
// transport delivers messages in the order in which they were sent.
TEST(PipelineCheck, RefusesATableWithTwoEdgesExchanged) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    const Table whole = with_messages(schedule_of(name, 3, 4));
    int exchanges = 0;
    for (std::size_t worker = 0; worker < whole.workers.size(); ++worker) {
      const std::vector<Action>& line = whole.workers[worker];
      for (std::size_t a = 0; a < line.size(); ++a) {
        for (std::size_t b = a + 1; b < line.size(); ++b) {
          if (!is_message(line[a].kind) || !is_message(line[b].kind)) continue;
          if (is_send(line[a]) != is_send(line[b])) continue;
          if (ends_of(whole, line[a]) != ends_of(whole, line[b])) continue;
          ++exchanges;
          Table table = whole;
          std::swap(table.workers[worker][a], table.workers[worker][b]);
          EXPECT_NE(error_of(table), "")
              << name << ": " << text(line[a]) << " and " << text(line[b]);
        }
      }
    }
    EXPECT_GT(exchanges, 0) << name;
  }
}

TEST(PipelineCheck, RefusesEveryExchangeThatBreaksAnOrder) {
  std::mt19937 random(7);
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const char* const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"};
    const int workers = 1 + static_cast<int>(random() % 8);
    const int micro_batches = 1 + static_cast<int>(random() % 32);
    Table table = with_messages(schedule_of(names[random() % 5], workers, micro_batches));
    std::vector<Action>& actions = table.workers[random() % table.workers.size()];
    const std::size_t a = random() % actions.size(), b = random() % actions.size();
    std::swap(actions[a], actions[b]);
    const std::string error = error_of(table);
    if (!error.empty()) {
      ++refused;
      continue;
    }
    // A table that passes the check must still be a valid training step.
    Timeline timeline;
    ASSERT_NO_THROW(timeline = replay(table));
    std::map<int, int> next;
    for (const auto& row : timeline.workers) {
      for (const Interval& each : row) {
        const Kind kind = each.action.kind;
        if (kind != Kind::kBackward && kind != Kind::kBackwardWeight) continue;
        ASSERT_EQ(each.action.micro_batch, next[each.action.stage]++);
      }
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace lockstep::pipeline
