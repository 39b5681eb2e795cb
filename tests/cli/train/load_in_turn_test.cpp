// The ranks are threads here, and stand for ranks that a foreign launcher started.
#include <lockstep/cli/train/load_in_turn.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using testing_support::environment_of;
using testing_support::no_errors;
using testing_support::run_threads;

constexpr int kRanks = 3;
constexpr Milliseconds kTimeout{2000};

recipes::RecipeData small_data(const std::string& description) {
  static const std::array<std::uint8_t, 4> bytes{};
  const ImageShard shard = {.images = bytes.data(),
                            .image_stride = 1,
                            .labels = bytes.data(),
                            .label_stride = 1,
                            .count = 4};
  return {.description = description, .train = ImageDataset("small", {1, 1, 1}, 1, {shard})};
}

// Calls `body` with each rank's group, whose timeout is kTimeout.
std::vector<std::string> run_ranks(const std::function<void(ProcessGroup&)>& body) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  return run_threads(kRanks, [&](int rank) {
    ProcessGroup group = init_process_group(
        {.backend = "shm", .timeout = kTimeout, .environment = environment_of(rank, kRanks, fd)});
    body(group);
  });
}

TEST(LoadInTurn, WaitsLongerForADownloadThanForAnythingElse) {
  std::atomic<bool> downloaded = false;
  const auto errors = run_ranks([&](ProcessGroup& group) {
    const recipes::RecipeData data = load_in_turn(
        [&](const LoadRequest& request) {
          EXPECT_EQ(request.may_download, group.rank() == 0);
          if (request.may_download) {
            std::this_thread::sleep_for(kTimeout + kTimeout / 4);  // a slow link
            downloaded = true;
          }
          EXPECT_TRUE(downloaded) << "rank " << group.rank() << " looked too early";
          return small_data("digits");
        },
        group);
    EXPECT_EQ(data.description, "digits");
  });
  EXPECT_EQ(errors, no_errors(kRanks));
}

TEST(LoadInTurn, SharesTheReasonOfAFailure) {
  std::atomic<int> calls = 0;
  const auto errors = run_ranks([&](ProcessGroup& group) {
    load_in_turn(
        [&](const LoadRequest&) -> recipes::RecipeData {
          ++calls;
          throw DataError("the file is damaged");
        },
        group);
  });
  EXPECT_EQ(errors[0], "the file is damaged");
  EXPECT_EQ(errors[1], "rank 0 cannot load the data: the file is damaged");
  EXPECT_EQ(errors[2], errors[1]);
  EXPECT_EQ(calls, 1) << "the others need not try";
}

TEST(LoadInTurn, RefusesDifferentData) {
  const auto errors = run_ranks([&](ProcessGroup& group) {
    load_in_turn(
        [&](const LoadRequest&) { return small_data(group.rank() == 2 ? "letters" : "digits"); },
        group);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 digits with 4 images, rank 2 letters with 4 images"));
  }
}

TEST(LoadInTurn, RefusesTheSameImagesInAnotherSplit) {
  const auto errors = run_ranks([&](ProcessGroup& group) {
    load_in_turn(
        [&](const LoadRequest&) {
          recipes::RecipeData data = small_data("photos");
          data.fingerprint = group.rank() == 1 ? "17" : "5";
          return data;
        },
        group);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 photos with 4 images (names and split: 5), rank 1 photos "
                                 "with 4 images (names and split: 17)"));
  }
}

TEST(LoadInTurn, GivesADownloadUpWhenTheGroupIsLost) {
  std::atomic<bool> stopped = false;
  const auto errors = run_ranks([&](ProcessGroup& group) {
    if (group.rank() == 2) throw Error("dead");
    load_in_turn(
        [&](const LoadRequest& request) -> recipes::RecipeData {
          while (!request.stop.stop_requested()) std::this_thread::yield();
          stopped = true;
          throw DataError("given up");
        },
        group);
  });
  EXPECT_TRUE(stopped);
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[0], "given up");
  EXPECT_NE(errors[1], "");
}

}  // namespace
}  // namespace lockstep::cli
