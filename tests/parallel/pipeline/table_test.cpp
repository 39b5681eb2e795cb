#include <lockstep/parallel/pipeline/schedule/table.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

TEST(PipelineAction, IsWrittenAsPyTorchWritesIt) {
  for (const char* name : {"0F0", "12B3", "2I10", "2W7", "1SEND_F3", "2RECV_F3", "2SEND_B3",
                           "1RECV_B3", "4REDUCE_GRAD"}) {
    EXPECT_EQ(text(action_of(name)), name);
  }
  EXPECT_EQ(action_of("2RECV_F13"), (Action{Kind::kReceiveForward, 2, 13}));
  EXPECT_EQ(action_of("4REDUCE_GRAD"), (Action{Kind::kReduce, 4, -1}));
}

TEST(PipelineAction, SaysWhatIsNone) {
  for (const char* name : {"", "F0", "0F", "0X1", "0F1x", "-1F0", "0F-1", "0SEND_F",
                           "0REDUCE_GRAD1", "99999999999F0", "2147483647F0", "0F2147483647"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { action_of(name); }),
                HasSubstr("\"" + std::string(name) + "\" is not an action of a pipeline"))
        << name;
  }
}

TEST(PipelineAction, HasALargestStageAndMicroBatch) {
  EXPECT_EQ(action_of("99999F999999"), (Action{Kind::kForward, 99'999, 999'999}));
  for (const char* name : {"100000F0", "0F1000000", "100000REDUCE_GRAD"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { action_of(name); }),
                HasSubstr("is not an action of a pipeline"))
        << name;
  }
}

TEST(PipelineAction, HasACategory) {
  const std::pair<const char*, const char*> categories[] = {
      {"0F0", "forward"},      {"0B0", "backward"},     {"0I0", "backward"},
      {"0W0", "backward"},     {"0SEND_F0", "message"}, {"1RECV_F0", "message"},
      {"1SEND_B0", "message"}, {"0RECV_B0", "message"}, {"0REDUCE_GRAD", "reduction"}};
  for (const auto& [name, category] : categories) {
    EXPECT_STREQ(kind_category(action_of(name).kind), category) << name;
  }
}

// A stage's last gradient may be that of a whole backward, also in a table with several stages on a
// worker.
TEST(PipelineTable, ReductionsFollowTheLastGradientOfEachStage) {
  const Table table = table_of("0F0,1F0,1B0,0I0,0F1,1F1,1B1,0I1,0W0,0W1\n", "mine");
  EXPECT_EQ(csv(with_reductions(table)),
            "0F0,1F0,1B0,0I0,0F1,1F1,1B1,1REDUCE_GRAD,0I1,0W0,0W1,0REDUCE_GRAD\n");
  EXPECT_FALSE(has_reductions(table));
  EXPECT_TRUE(has_reductions(with_reductions(table)));
  EXPECT_FALSE(has_messages(with_reductions(table)));
  EXPECT_EQ(csv(forwards_of(with_reductions(table))), "0F0,1F0,0F1,1F1\n");
}

TEST(PipelineTable, IsReadFromPyTorchsFile) {
  const Table table = table_of("0F0, 0F1,,0B0 ,0B1\r\n,1F0,1B0,1F1,1B1,\n\n", "mine");
  EXPECT_EQ(table.name, "mine");
  EXPECT_EQ(table.micro_batches, 2);
  EXPECT_THAT(table.worker_of, ElementsAre(0, 1));
  EXPECT_EQ(csv(table), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(table_of(csv(table), "mine"), table);
}

TEST(PipelineTable, AnEmptyLineIsAWorkerThatRests) {
  const Table table = table_of("0F0,0B0\n\n1F0,1B0\n\n", "mine");
  EXPECT_THAT(table.worker_of, ElementsAre(0, 2));
  EXPECT_EQ(csv(table), "0F0,0B0\n\n1F0,1B0\n");
}

TEST(PipelineTable, EmptyLinesAtTheEndAreNoWorkers) {
  for (const char* end : {"", "\n", "\n\n\n\n", "\r\n\r\n\r\n", "\n,\n , \n"}) {
    const Table table = table_of("0F0,0B0\n1F0,1B0" + std::string(end), "mine");
    EXPECT_EQ(table.workers.size(), 2U);
    EXPECT_EQ(csv(table), "0F0,0B0\n1F0,1B0\n");
    const Table none = table_of(end, "mine");
    EXPECT_TRUE(none.workers.empty());
    EXPECT_EQ(none.stages(), 0);
    EXPECT_EQ(none.micro_batches, 0);
  }
}

TEST(PipelineTable, RefusesAStageInTwoLines) {
  EXPECT_THAT(message_of<ConfigError>([] { table_of("0F0\n0B0\n", "mine"); }),
              HasSubstr("table mine: stage 0 stands in the lines of workers 0 and 1"));
}

TEST(PipelineTable, MessagesFollowWhatMakesThemAndPrecedeWhatNeedsThem) {
  const Table table = table_of("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n", "mine");
  EXPECT_EQ(csv(with_messages(table)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1I0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1W0,1W1\n");
}

// Worker 1 needs the second message first, but receives the first one before it, because messages
// arrive in the order of their sends.
TEST(PipelineTable, MessagesAreReceivedInTheOrderInWhichTheyAreSent) {
  const Table table = table_of("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", "mine");
  EXPECT_THAT(csv(with_messages(table)), HasSubstr("\n1RECV_F0,1RECV_F1,1F1,1F0,1B0,"));
}

TEST(PipelineTable, NothingIsSentToTheSameWorker) {
  const Table table = table_of("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "mine");
  EXPECT_EQ(csv(with_messages(table)),
            "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n");
}

TEST(PipelineTable, ReductionsFollowTheLastGradient) {
  const Table table = table_of("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n", "mine");
  EXPECT_EQ(csv(with_messages(with_reductions(table))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1I0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1W0,1W1,1REDUCE_GRAD\n");
}

TEST(PipelineTable, ABackwardThatCannotBeSplitStandsWhereItsInputsStood) {
  const Table table = table_of("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n", "mine");
  const Table whole = with_whole_backward(table, 1);
  EXPECT_EQ(csv(whole), "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1B0,1F1,1B1\n");
  EXPECT_NO_THROW(check(whole));
}

TEST(PipelineTable, AWholeBackwardIsThatOfOneStageOfAWorker) {
  const Table table = table_of("0F0,1F0,1I0,0I0,1W0,0W0\n", "mine");
  EXPECT_EQ(csv(with_whole_backward(table, 1)), "0F0,1F0,1B0,0I0,0W0\n");
  EXPECT_EQ(csv(with_whole_backward(table, 0)), "0F0,1F0,1I0,0B0,1W0\n");
  EXPECT_EQ(csv(with_whole_backward(with_whole_backward(table, 0), 1)), "0F0,1F0,1B0,0B0\n");
}

// What a table has may be the last action of any worker.
TEST(PipelineTable, KnowsItsReductionsAndMessagesOnEveryWorker) {
  const Table plain = table_of("0F0,0B0\n1F0,1B0\n2F0,2B0\n", "mine");
  EXPECT_FALSE(has_reductions(plain));
  EXPECT_FALSE(has_messages(plain));
  EXPECT_FALSE(has_reductions(with_messages(plain)));
  for (std::size_t worker = 0; worker < plain.workers.size(); ++worker) {
    Table table = plain;
    table.workers[worker].push_back(with_reductions(plain).workers[worker].back());
    EXPECT_TRUE(has_reductions(table)) << worker;
    EXPECT_FALSE(has_messages(table)) << worker;
    for (const Kind kind :
         {Kind::kSendForward, Kind::kReceiveForward, Kind::kSendBackward, Kind::kReceiveBackward}) {
      table = plain;
      table.workers[worker].push_back({kind, static_cast<int>(worker), 0});
      EXPECT_TRUE(has_messages(table)) << worker;
      EXPECT_FALSE(has_reductions(table)) << worker;
    }
  }
}

TEST(PipelineTable, GetsItsMessagesOnceAndAfterItsReductions) {
  const Table table = with_messages(table_of("0F0,0B0\n1F0,1B0\n", "mine"));
  EXPECT_THAT(message_of<InternalError>([&] { with_messages(table); }),
              HasSubstr("table mine has messages already"));
  EXPECT_THAT(message_of<InternalError>([&] { with_reductions(table); }),
              HasSubstr("table mine has messages already"));
}

}  // namespace
}  // namespace lockstep::pipeline
