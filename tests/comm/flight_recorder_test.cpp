#include <lockstep/comm/diagnostics/flight_recorder.h>

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
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
