#include <lockstep/comm/diagnostics/flight_recorder.h>

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CallDescription call(CallKind kind, std::uint32_t count, int root = -1) {
  CallDescription result;
  result.kind = kind;
  result.type = detail::DataType::kFloat32;
  result.root = root;
  result.count = count;
  result.shape.dimensions = 1;
  result.shape.sizes[0] = count;
  return result;
}

/// The encoding of a short text in a pickle.
std::string text(const std::string& value) {
  return std::string("X") + static_cast<char>(value.size()) + std::string(3, '\0') + value;
}

/// The encoding of a small number.
std::string integer(std::int32_t value) {
  std::string result = "J";
  for (int shift = 0; shift < 32; shift += 8) {
    result += static_cast<char>(static_cast<std::uint32_t>(value) >> shift & 0xffU);
  }
  return result;
}

/// The encoding of the sizes of one tensor: a list that holds a list.
std::string sizes(const std::vector<std::int32_t>& values) {
  std::string result = "](](";
  for (const std::int32_t value : values) result += integer(value);
  return result + "ee";
}

/// The encoding of the tensors of an operation.
std::string tensors(const std::vector<std::int32_t>& input, const std::vector<std::int32_t>& output,
                    const std::string& type = "Float") {
  const std::string types = "](" + text(type) + "e";
  return text("input_sizes") + sizes(input) + text("input_dtypes") + types + text("output_sizes") +
         sizes(output) + text("output_dtypes") + types;
}

/// The moments in a dump under `key`, in the order of the operations; none where there is none.
std::vector<std::int64_t> moments(const std::string& dump, const std::string& key) {
  const std::string begin = text(key) + "\x8a\x08";
  std::vector<std::int64_t> result;
  for (auto at = dump.find(begin); at != std::string::npos; at = dump.find(begin, at + 1)) {
    std::uint64_t moment = 0;
    for (std::size_t byte = 8; byte-- > 0;) {
      moment = moment << 8 | static_cast<unsigned char>(dump.at(at + begin.size() + byte));
    }
    result.push_back(static_cast<std::int64_t>(moment));
  }
  return result;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FlightRecorder, KeepsTheLastOperations) {
  FlightRecorder recorder(0, 2, 3);
  auto* group = recorder.add_group("world", {0, 1});
  for (std::uint32_t i = 0; i < 5; ++i) {
    recorder.completed(recorder.created(group, i, call(CallKind::kAllReduce, 10 + i)));
  }
  const std::string dump = recorder.pickle();
  EXPECT_THAT(dump, Not(HasSubstr("all_reduce[float32, 11]")));
  for (const char* kept :
       {"all_reduce[float32, 12]", "all_reduce[float32, 13]", "all_reduce[float32, 14]"}) {
    EXPECT_THAT(dump, HasSubstr(kept));
  }
}

// What rank 1 of three ranks gives and takes, as root and as any other rank.
TEST(FlightRecorder, WritesTheSizesOfInputAndOutput) {
  using Sizes = std::vector<std::int32_t>;
  struct Case {
    CallKind kind;
    int root;
    Sizes input, output;
  };
  const Sizes piece = {7}, all = {3, 7}, none = {0};
  const Case cases[] = {
      {CallKind::kBarrier, -1, none, none},   {CallKind::kBroadcast, 0, piece, piece},
      {CallKind::kReduce, 1, piece, piece},   {CallKind::kAllReduce, -1, piece, piece},
      {CallKind::kGather, 1, piece, all},     {CallKind::kGather, 0, piece, none},
      {CallKind::kAllGather, -1, piece, all}, {CallKind::kScatter, 1, all, piece},
      {CallKind::kScatter, 2, none, piece},   {CallKind::kReduceScatter, -1, all, piece},
      {CallKind::kAllToAll, -1, all, all},    {CallKind::kSend, 0, piece, piece},
      {CallKind::kRecv, -1, piece, piece},
  };
  for (const Case& each : cases) {
    FlightRecorder recorder(1, 3, 1);
    recorder.created(recorder.add_group("world", {0, 1, 2}), 0, call(each.kind, 7, each.root));
    EXPECT_THAT(recorder.pickle(), HasSubstr(tensors(each.input, each.output)))
        << call_name(each.kind) << ", root " << each.root;
  }
}

// Where the description does not hold all sizes of a shape, the sizes are the number of elements.
TEST(FlightRecorder, WritesAShapeThatItKnowsCompletely) {
  constexpr std::uint32_t kCut = 0xFFFF'FFFF;
  struct Case {
    std::uint8_t dimensions;
    std::array<std::uint32_t, Shape::kPlaces> sizes;
    std::vector<std::int32_t> written;
  };
  const Case cases[] = {
      {0, {}, {77}},
      {1, {0}, {0}},
      {2, {2, 3}, {2, 3}},
      {6, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {7, {1, 2, 3, 4, 5, 6}, {77}},
      {1, {kCut}, {77}},
      {2, {2, kCut}, {77}},
      {2, {2, 3, kCut}, {2, 3}},
  };
  for (const Case& each : cases) {
    CallDescription description = call(CallKind::kAllReduce, 77);
    description.shape = {.dimensions = each.dimensions, .sizes = each.sizes};
    FlightRecorder recorder(0, 2, 1);
    recorder.created(recorder.add_group("world", {0, 1}), 0, description);
    EXPECT_THAT(recorder.pickle(), HasSubstr(tensors(each.written, each.written)))
        << describe(description);
  }
}

TEST(FlightRecorder, WritesPyTorchsNamesOfTypes) {
  using detail::DataType;
  const std::pair<DataType, const char*> names[] = {
      {DataType::kFloat32, "Float"}, {DataType::kFloat64, "Double"},
      {DataType::kFloat16, "Half"},  {DataType::kBFloat16, "BFloat16"},
      {DataType::kInt8, "Char"},     {DataType::kInt16, "Short"},
      {DataType::kInt32, "Int"},     {DataType::kInt64, "Long"},
      {DataType::kUInt8, "Byte"},    {DataType::kBool, "Bool"},
      {DataType::kByte, "Byte"},
  };
  for (const auto& [type, name] : names) {
    CallDescription description = call(CallKind::kAllReduce, 5);
    description.type = type;
    FlightRecorder recorder(0, 2, 1);
    recorder.created(recorder.add_group("world", {0, 1}), 0, description);
    EXPECT_THAT(recorder.pickle(), HasSubstr(tensors({5}, {5}, name)));
  }
}

// An operation that failed never ended, as far as PyTorch's analyser knows.
TEST(FlightRecorder, WritesHowFarEachOperationCame) {
  FlightRecorder recorder(0, 2, 8);
  auto* group = recorder.add_group("world", {0, 1});
  recorder.add_group("unused", {0});
  std::vector<FlightRecorder::Id> ids;
  for (std::uint32_t i = 0; i < 5; ++i) {
    ids.push_back(recorder.created(group, i, call(CallKind::kAllReduce, 1)));
  }
  for (std::size_t i = 0; i < 3; ++i) recorder.started(ids[i]);
  recorder.completed(ids[0]);
  recorder.failed(ids[1]);
  recorder.failed(ids[3]);
  CallDescription message = call(CallKind::kSend, 1);
  message.root = 1;
  recorder.completed(recorder.created(group, 9, message, /*begun=*/true));
  const std::string dump = recorder.pickle();
  const char *const kTrue = "\x88", *const kFalse = "\x89";
  struct Case {
    int number;
    const char* state;
    bool retired, failed;
  };
  std::size_t at = 0;
  for (const Case& each : {Case{0, "completed", true, false}, Case{1, "started", false, true},
                           Case{2, "started", false, false}, Case{3, "scheduled", false, true},
                           Case{4, "scheduled", false, false}, Case{9, "completed", true, false}}) {
    const bool is_message = each.number == 9;
    for (const std::string& part : {text("state") + text(each.state),
                                    text("retired") + (each.retired ? kTrue : kFalse) +
                                        text("is_p2p") + (is_message ? kTrue : kFalse),
                                    text("number") + integer(each.number) + text("failed") +
                                        (each.failed ? kTrue : kFalse) + "u"}) {
      at = dump.find(part, at);
      ASSERT_NE(at, std::string::npos) << "operation " << each.number << ": " << part;
    }
  }
  const auto status = [](int group_id, int enqueued, int begun, int ended) {
    return text(str(group_id)) + "}(" + text("last_enqueued_collective") + integer(enqueued) +
           text("last_started_collective") + integer(begun) + text("last_completed_collective") +
           integer(ended) + "u";
  };
  EXPECT_THAT(
      dump, HasSubstr(text("pg_status") + "}(" + status(0, 4, 2, 0) + status(1, -1, -1, -1) + "u"))
      << "messages do not count";
}

// The moments of what has not happened are missing.
TEST(FlightRecorder, WritesWhenEachOperationBeganAndEnded) {
  const auto now = [] {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const auto next_moment = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const std::int64_t before = now();
  FlightRecorder recorder(0, 2, 4);
  auto* group = recorder.add_group("world", {0, 1});
  const auto first = recorder.created(group, 0, call(CallKind::kBarrier, 0));
  next_moment();
  recorder.started(first);
  next_moment();
  recorder.completed(first);
  next_moment();
  recorder.failed(recorder.created(group, 1, call(CallKind::kBarrier, 0)));
  const std::string dump = recorder.pickle();
  const std::int64_t after = now();
  const auto created = moments(dump, "time_created_ns");
  const auto started = moments(dump, "time_discovered_started_ns");
  const auto completed = moments(dump, "time_discovered_completed_ns");
  ASSERT_EQ(created.size(), 2U);
  ASSERT_EQ(started.size(), 1U);
  ASSERT_EQ(completed.size(), 1U);
  EXPECT_LE(before, created[0]);
  EXPECT_LT(created[0], started[0]);
  EXPECT_LT(started[0], completed[0]);
  EXPECT_LT(completed[0], created[1]);
  EXPECT_LE(created[1], after);
  for (const char* missing : {"time_discovered_started_ns", "time_discovered_completed_ns"}) {
    EXPECT_THAT(dump, HasSubstr(text(missing) + "N"));
  }
}

TEST(FlightRecorder, TellsWhatHasEndedSinceAMoment) {
  FlightRecorder recorder(0, 2, 8);
  auto* group = recorder.add_group("world", {0, 1});
  recorder.completed(recorder.created(group, 0, call(CallKind::kAllReduce, 10)));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const Clock::time_point from = Clock::now();
  const auto first = recorder.created(group, 1, call(CallKind::kAllReduce, 11));
  const auto failing = recorder.created(group, 2, call(CallKind::kAllReduce, 12));
  const auto last = recorder.created(group, 3, call(CallKind::kBarrier, 0));
  recorder.created(group, 4, call(CallKind::kBarrier, 0));
  recorder.completed(last);
  recorder.failed(failing);
  recorder.completed(first);
  const std::vector<RecordedCall> calls =
      recorder.completed_since(from - std::chrono::milliseconds(1));
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].number, 1U);
  EXPECT_EQ(calls[0].call.count, 11U);
  EXPECT_EQ(calls[0].group, "world");
  EXPECT_EQ(calls[1].number, 3U);
  EXPECT_LE(calls[0].begin, calls[1].begin);
  EXPECT_LE(calls[1].end, calls[0].end);
  EXPECT_LE(calls[0].end, Clock::now() + std::chrono::milliseconds(1));
  EXPECT_THAT(recorder.completed_since(Clock::now() + std::chrono::seconds(1)),
              ::testing::IsEmpty());
}

// Both ends count the messages of each pair and direction.
TEST(FlightRecorder, NamesAMessageAlikeAtBothEnds) {
  const auto message = [](CallKind kind, int peer) {
    CallDescription description = call(kind, 1);
    description.root = peer;
    return description;
  };
  FlightRecorder sender(5, 8, 8);
  auto* of_sender = sender.add_group("pair", {3, 5});
  sender.completed(sender.created(of_sender, 0, message(CallKind::kSend, 0)));
  sender.completed(sender.created(of_sender, 1, message(CallKind::kRecv, 0)));
  sender.completed(sender.created(of_sender, 2, message(CallKind::kSend, 0)));
  FlightRecorder receiver(3, 8, 8);
  auto* of_receiver = receiver.add_group("pair", {3, 5});
  receiver.completed(receiver.created(of_receiver, 0, message(CallKind::kRecv, 1)));
  receiver.completed(receiver.created(of_receiver, 1, message(CallKind::kRecv, -1)), /*source=*/1);
  const auto names = [](const FlightRecorder& recorder) {
    std::vector<std::string> found;
    for (const RecordedCall& each : recorder.completed_since(Clock::time_point::min())) {
      found.push_back(each.message);
    }
    return found;
  };
  EXPECT_THAT(names(sender),
              ElementsAre("1 to 0 message 0", "0 to 1 message 0", "1 to 0 message 1"));
  EXPECT_THAT(names(receiver), ElementsAre("1 to 0 message 0", "1 to 0 message 1"));
}

TEST(FlightRecorder, AnOverwrittenOperationMayStillEnd) {
  FlightRecorder recorder(0, 2, 1);
  auto* group = recorder.add_group("world", {0, 1});
  const auto first = recorder.created(group, 0, call(CallKind::kAllReduce, 1));
  recorder.created(group, 1, call(CallKind::kBarrier, 0));
  recorder.completed(first);
  EXPECT_THAT(recorder.pickle(), HasSubstr(text("scheduled")));
  EXPECT_THAT(recorder.pickle(), Not(HasSubstr(text("completed"))));
}

TEST(FlightRecorder, ForgetsRemovedGroupsOnceTheirOperationsAreOverwritten) {
  FlightRecorder recorder(0, 2, 2);
  auto* gone = recorder.add_group("gone", {0, 1});
  auto* stays = recorder.add_group("stays", {0, 1});
  recorder.created(gone, 0, call(CallKind::kBarrier, 0));
  recorder.remove_group(gone);
  recorder.add_group("third", {0, 1});
  EXPECT_THAT(recorder.pickle(), HasSubstr("gone"));
  recorder.created(stays, 0, call(CallKind::kBarrier, 0));
  recorder.created(stays, 1, call(CallKind::kBarrier, 0));
  recorder.add_group("fourth", {0, 1});
  EXPECT_THAT(recorder.pickle(), Not(HasSubstr("gone")));
}

TEST(FlightRecorder, ForgetsAGroupThatWasNeverUsed) {
  FlightRecorder recorder(0, 2, 2);
  auto* stays = recorder.add_group("stays", {0, 1});
  recorder.created(stays, 0, call(CallKind::kBarrier, 0));
  recorder.remove_group(recorder.add_group("gone", {0, 1}));
  EXPECT_THAT(recorder.pickle(), HasSubstr("gone"));
  recorder.add_group("next", {0, 1});
  EXPECT_THAT(recorder.pickle(), Not(HasSubstr("gone")));
  EXPECT_THAT(recorder.pickle(), HasSubstr("stays"));
}

TEST(FlightRecorder, KeepsAtLeastOneOperation) {
  FlightRecorder recorder(0, 2, 0);
  auto* group = recorder.add_group("world", {0, 1});
  for (std::uint32_t i = 0; i < 2; ++i) {
    recorder.completed(recorder.created(group, i, call(CallKind::kAllReduce, 10 + i)));
  }
  EXPECT_THAT(recorder.pickle(), HasSubstr("all_reduce[float32, 11]"));
  EXPECT_THAT(recorder.pickle(), Not(HasSubstr("all_reduce[float32, 10]")));
}

TEST(FlightRecorder, DumpsIntoAFolderOfThisUserAlone) {
  const testing_support::TemporaryDirectory folder;
  FlightRecorder recorder(3, 4);
  const auto directory = folder.path() / "deep" / "flight";
  const auto path = recorder.dump(directory);
  EXPECT_EQ(path, directory / "rank_3");
  struct stat info{};
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const std::string first = content(path);
  recorder.created(recorder.add_group("world", {0, 1, 2, 3}), 0, call(CallKind::kBarrier, 0));
  recorder.dump(directory);
  EXPECT_NE(content(path), first);
}

// Only the folder of this user's jobs is cleaned up.
TEST(FlightRecorder, RemovesNothingFromAFolderThatTheUserChose) {
  const testing_support::TemporaryDirectory folder;
  for (int second = 10; second < 40; ++second) {
    std::filesystem::create_directories(folder.path() / str("20260102T0304", second, "Z-77"));
  }
  FlightRecorder(0, 1).dump(folder.path() / "20260102T030440Z-77");
  EXPECT_EQ(folder.names().size(), 31U);
}

// A receive that fails counts nothing, and one that is reported twice counts once.
TEST(FlightRecorder, CountsOnlyMessagesThatHaveCome) {
  const auto message = [](CallKind kind, int peer) {
    CallDescription description = call(kind, 1);
    description.root = peer;
    return description;
  };
  FlightRecorder recorder(0, 3, 16);
  auto* group = recorder.add_group("world", {0, 1, 2});
  const auto any = message(CallKind::kRecv, -1);
  recorder.failed(recorder.created(group, 0, any));
  recorder.completed(recorder.created(group, 1, any), /*source=*/2);
  recorder.completed(recorder.created(group, 2, any), /*source=*/1);
  recorder.completed(recorder.created(group, 3, any), /*source=*/2);
  recorder.completed(recorder.created(group, 4, message(CallKind::kRecv, 2)), /*source=*/2);
  recorder.completed(recorder.created(group, 5, message(CallKind::kSend, 2)), /*source=*/-1);
  const auto ended = recorder.created(group, 6, any);
  recorder.completed(ended, /*source=*/1);
  recorder.completed(ended, /*source=*/1);
  recorder.completed(recorder.created(group, 7, call(CallKind::kBarrier, 0)), /*source=*/1);
  recorder.completed(recorder.created(group, 8, any), /*source=*/1);
  std::vector<std::string> names;
  for (const RecordedCall& each : recorder.completed_since(Clock::time_point::min())) {
    names.push_back(each.message);
  }
  EXPECT_THAT(names, ElementsAre("2 to 0 message 0", "1 to 0 message 0", "2 to 0 message 1",
                                 "2 to 0 message 2", "0 to 2 message 0", "1 to 0 message 1", "",
                                 "1 to 0 message 2"));
}

TEST(FlightRecorder, RefusesWhatIsNotAFolder) {
  const testing_support::TemporaryDirectory folder;
  const FlightRecorder recorder(0, 1);
  std::filesystem::create_directory(folder.path() / "elsewhere");
  std::filesystem::create_directory_symlink(folder.path() / "elsewhere", folder.path() / "link");
  EXPECT_THROW(recorder.dump(folder.path() / "link"), DataError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "elsewhere"));
  folder.write("file", "kept");
  EXPECT_EQ(
      testing_support::message_of<DataError>([&] { recorder.dump(folder / "file"); }),
      "cannot write the flight recorder into " + (folder / "file").string() + ": not a folder");
  EXPECT_EQ(testing_support::message_of<DataError>([&] { recorder.dump(folder / "file/below"); }),
            "cannot create the folder " + (folder / "file/below").string() + ": Not a directory");
  EXPECT_EQ(testing_support::read_text(folder / "file"), "kept");
}

TEST(FlightRecorder, RefusesTheFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  const testing_support::TemporaryDirectory folder;
  const auto directory = folder / "flight";
  std::filesystem::create_directory(directory);
  if (chown(directory.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "this system has no such user";
  EXPECT_EQ(testing_support::message_of<DataError>([&] { FlightRecorder(0, 1).dump(directory); }),
            "cannot write the flight recorder into " + directory.string() +
                ": it belongs to user 65534, expected 0");
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

// TMPDIR may name a folder that has been removed.
TEST(FlightRecorder, UsesTheUsualFolderWhereTheUsersIsMissing) {
  const testing_support::TemporaryDirectory folder;
  testing_support::ScopedEnvironment environment;
  environment.set("TMPDIR", (folder / "missing").string());
  EXPECT_EQ(user_flight_directory(), str("/tmp/lockstep_flight_", geteuid()));
}

// It is not enough that this user owns the folder of the job: the owner of the parent folder can
// replace it.
TEST(FlightRecorder, RefusesTheFolderOfJobsWhereItIsALink) {
  const testing_support::TemporaryDirectory folder;
  testing_support::ScopedEnvironment environment;
  environment.set("TMPDIR", folder.path().string());
  const auto user = user_flight_directory();
  EXPECT_EQ(user.parent_path(), folder.path());
  const FlightRecorder recorder(0, 1);
  recorder.dump(user / "job");
  struct stat info{};
  ASSERT_EQ(stat(user.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  std::filesystem::rename(user, folder.path() / "elsewhere");
  std::filesystem::create_directory_symlink(folder.path() / "elsewhere", user);
  EXPECT_THROW(recorder.dump(user / "job"), DataError);
}

TEST(FlightRecorder, KeepsTheNewestJobs) {
  const testing_support::TemporaryDirectory folder;
  testing_support::ScopedEnvironment environment;
  environment.set("TMPDIR", folder.path().string());
  const auto user = user_flight_directory();
  const auto name_of = [](int second) { return str("20260102T0304", second, "Z-77"); };
  for (int second = 10; second < 40; ++second) {
    std::filesystem::create_directories(user / name_of(second) / "inside");
  }
  const char* const others[] = {"notes",
                                "20250102T030405Z",
                                "20250102T030405Z-",
                                "2025-102T030405Z-7",
                                "2025010:T030405Z-7",
                                "20250102T030405z-7",
                                "20250102 030405Z-7"};
  for (const char* other : others) std::filesystem::create_directory(user / other);
  // The user's own link and file, with names as those of old jobs.
  std::filesystem::create_directory_symlink(user / "notes", user / "20250102T030405Z-1");
  std::ofstream(user / "20250102T030405Z-2") << "kept";
  FlightRecorder(0, 1).dump(user / "20260102T030440Z-77");
  for (int second = 10; second < 21; ++second) {
    EXPECT_FALSE(std::filesystem::exists(user / name_of(second))) << second;
  }
  for (int second = 21; second < 41; ++second) {
    EXPECT_TRUE(std::filesystem::exists(user / name_of(second))) << second;
  }
  for (const char* other : others) {
    EXPECT_TRUE(std::filesystem::exists(user / other)) << other;
  }
  EXPECT_TRUE(std::filesystem::exists(user / "20250102T030405Z-1")) << "a link";
  EXPECT_TRUE(std::filesystem::exists(user / "20250102T030405Z-2")) << "a file";
}

// A job that has run for weeks may fail after many jobs that began later.
TEST(FlightRecorder, KeepsItsOwnJobHoweverOldItIs) {
  const testing_support::TemporaryDirectory folder;
  testing_support::ScopedEnvironment environment;
  environment.set("TMPDIR", folder.path().string());
  const auto user = user_flight_directory();
  for (int second = 10; second < 40; ++second) {
    std::filesystem::create_directories(user / str("20260102T0304", second, "Z-77"));
  }
  EXPECT_TRUE(std::filesystem::exists(FlightRecorder(0, 1).dump(user / "20251224T120000Z-77")));
}

// Under ThreadSanitizer, this checks that dumping does not race with recording. Every operation in
// a dump must be consistent: its number and its count belong together.
TEST(FlightRecorder, RecordsFromManyThreadsWhileItIsDumped) {
  FlightRecorder recorder(0, 2, 64);
  auto* group = recorder.add_group("world", {0, 1});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; !stop; ++i) {
        const bool receives = t == 0;
        const auto id = recorder.created(
            group, i, receives ? call(CallKind::kRecv, i) : call(CallKind::kBroadcast, i, 0));
        recorder.started(id);
        t == 1 ? recorder.failed(id) : recorder.completed(id, receives ? 1 : -1);
      }
    });
  }
  const std::string number_key = text("number") + "J", found = "broadcast[float32, ";
  for (int checked = 0; checked < 200;) {
    const std::string dump = recorder.pickle();
    for (auto at = dump.find(found); at != std::string::npos;
         at = dump.find(found, at + 1), ++checked) {
      const auto digits = dump.find(number_key, at) + number_key.size();
      ASSERT_LT(digits + 4, dump.size());
      std::uint32_t number = 0;
      for (std::size_t j = 4; j-- > 0;)
        number = number << 8 | static_cast<unsigned char>(dump[digits + j]);
      const std::string expected = str(found, number, ',');
      ASSERT_EQ(dump.substr(at, expected.size()), expected);
    }
  }
  stop = true;
  for (auto& each : threads) each.join();
}

}  // namespace
}  // namespace lockstep::comm
