// The queue of a group's calls whose data is on its way from a device to the host.
#include <lockstep/comm/group/staged_starts.h>

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/comm/group/group_work.h>
#include <lockstep/core/error.h>
#include <tests/support/far_device/far_device.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::message_of;
using torch::Tensor;
using Works = std::vector<std::shared_ptr<Work>>;
namespace far_device = testing_support::far_device;

Tensor on_device() { return torch::arange(6).to(torch::kFloat32).to(far_device::device()); }

TEST(StagedStarts, AskToBeLookedAtWhileDataIsOnItsWay) {
  far_device::install();
  const auto starts = std::make_shared<StagedStarts>(nullptr);
  constexpr auto kForEver = std::chrono::nanoseconds::max();
  EXPECT_EQ(starts->longest_sleep(), kForEver);
  std::shared_ptr<Work> work;
  {
    const far_device::Hold hold;
    const Tensor host = torch::empty({6}, torch::TensorOptions().pinned_memory(true));
    work = starts->push({.start = [] { return std::make_shared<WorkList>(Works{}); },
                         .loads = {{host, on_device()}},
                         .owner = nullptr,
                         .abort = {},
                         .timeout = seconds(60)});
    EXPECT_LE(starts->longest_sleep(), milliseconds(1));
    EXPECT_FALSE(work->is_completed());
    EXPECT_FALSE(starts->empty());
  }
  work->wait();
  EXPECT_TRUE(work->is_completed());
  EXPECT_TRUE(starts->empty());
  EXPECT_EQ(starts->longest_sleep(), kForEver);
}

// An operation whose end a test decides.
class ToldWork final : public Work {
 public:
  void wait(std::optional<milliseconds> timeout) override { limits.push_back(timeout); }
  bool is_completed() override { return completed; }
  std::exception_ptr error() const override { return nullptr; }
  int source_rank() const override { return 5; }

  bool completed = false;
  std::vector<std::optional<milliseconds>> limits{};
};

// A program may keep the handle, which must not keep the group.
TEST(StagedStarts, HoldTheOwnerOfACallUntilItHasEnded) {
  for (const bool polls : {false, true}) {
    const auto starts = std::make_shared<StagedStarts>(nullptr);
    const auto told = std::make_shared<ToldWork>();
    auto owner = std::make_shared<int>(0);
    const std::weak_ptr<int> owned = owner;
    const auto work = starts->push({.start = [told] { return told; },
                                    .owner = std::move(owner),
                                    .abort = {},
                                    .timeout = seconds(60)});
    EXPECT_FALSE(work->is_completed());
    EXPECT_FALSE(owned.expired());
    EXPECT_EQ(told.use_count(), 2) << "the handle's, once the call has started";
    told->completed = true;
    if (polls) {
      EXPECT_TRUE(work->is_completed());
    } else {
      work->wait();
    }
    EXPECT_TRUE(owned.expired());
    EXPECT_TRUE(work->is_completed());
    EXPECT_EQ(work->error(), nullptr);
    EXPECT_EQ(work->source_rank(), 5);
    told->limits.clear();
    work->wait();
    work->wait(seconds(7));
    ASSERT_EQ(told->limits.size(), 2U);
    EXPECT_EQ(told->limits[0], std::nullopt);
    EXPECT_LE(told->limits[1], milliseconds(7000));
    EXPECT_GT(told->limits[1], milliseconds(0));
  }
}

TEST(StagedStarts, ReportACallThatCouldNotStart) {
  const auto starts = std::make_shared<StagedStarts>(nullptr);
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> owned = owner;
  const auto work =
      starts->push({.start = []() -> std::shared_ptr<Work> { throw ConfigError("wrong"); },
                    .owner = std::move(owner),
                    .abort = {},
                    .timeout = seconds(60)});
  EXPECT_TRUE(starts->empty());
  EXPECT_TRUE(work->is_completed());
  EXPECT_TRUE(owned.expired());
  EXPECT_EQ(work->source_rank(), -1);
  ASSERT_NE(work->error(), nullptr);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(message_of<ConfigError>([&] { work->wait(); }), "wrong");
  }
}

// Their peers would wait for them, but no longer than the group may take to end.
TEST(StagedStarts, DropCallsWhoseDataDoesNotArrive) {
  far_device::install();
  const Tensor host = torch::empty({6}, torch::TensorOptions().pinned_memory(true));
  const Tensor source = on_device();
  for (const bool has_ended : {false, true}) {
    const auto starts = std::make_shared<StagedStarts>(nullptr);
    int started = 0;
    const far_device::Hold hold;
    const auto work = starts->push({.start =
                                        [&] {
                                          ++started;
                                          return std::make_shared<ToldWork>();
                                        },
                                    .loads = {{host, source}},
                                    .owner = nullptr,
                                    .abort = {},
                                    .timeout = seconds(60)});
    EXPECT_FALSE(starts->empty());
    EXPECT_TRUE(starts->needs_a_hand());
    EXPECT_FALSE(work->is_completed());
    EXPECT_EQ(work->error(), nullptr);
    EXPECT_EQ(work->source_rank(), -1);
    int checks = 0;
    starts->finish(has_ended ? std::chrono::minutes(5) : milliseconds(0), [&] {
      ++checks;
      throw CommError("enough");
    });
    EXPECT_EQ(checks, has_ended ? 1 : 0);
    EXPECT_EQ(started, 0);
    EXPECT_TRUE(starts->empty());
    EXPECT_FALSE(starts->needs_a_hand());
    EXPECT_FALSE(work->is_completed());
  }
  // The copies, which are in order, still run.
  const auto starts = std::make_shared<StagedStarts>(nullptr);
  starts
      ->push({.start = [] { return std::make_shared<WorkList>(Works{}); },
              .loads = {{host, source}},
              .owner = nullptr,
              .abort = {},
              .timeout = seconds(60)})
      ->wait();
  EXPECT_TRUE(torch::equal(host, torch::arange(6).to(torch::kFloat32)));
}

}  // namespace
}  // namespace lockstep::comm
