// The calls that `lockstep bench comm` times: their buffers, the check of their results, and the
// group in which the ranks wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/bench/collectives/calls.h>
#include <lockstep/bench/group.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep::bench {
namespace {

using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

constexpr int kCallRanks = 3;
constexpr std::int64_t kLarge = std::int64_t{1} << 40;

// Whether `rank` of kCallRanks gets a result that it can check.
bool has_result(CallKind kind, int rank) {
  switch (kind) {
    case CallKind::kBarrier:
      return false;
    case CallKind::kReduce:
    case CallKind::kGather:
      return rank == 0;
    case CallKind::kSend:
      return rank == 1;
    default:
      return true;
  }
}

// The values of each call differ from those of the next one, so a call that was not made is found.
void expect_checked(ProcessGroup& group, const BenchCase& which) {
  BenchCall call(group, which);
  for (int number = 0; number < 3; ++number) {
    call.write(number);
    group.barrier();
    call.run();
    call.check(number);
  }
  const std::string found = message_of<InternalError>([&] { call.check(3); });
  const std::string name = bench_call_name(which.collective);
  if (!has_result(which.collective, group.rank())) {
    EXPECT_EQ(found, "nothing was thrown") << name << " on rank " << group.rank();
    return;
  }
  EXPECT_THAT(found, ::testing::HasSubstr(lockstep::str("rank ", group.rank(), ": ", name, " of ",
                                                        call.bytes(), " bytes gave ")));
}

TEST(BenchCall, ChecksTheResultOfEachCollective) {
  for (const auto& [backend, symmetric] :
       {std::pair("shm", true), std::pair("shm", false), std::pair("gloo", false)}) {
    const bool is_symmetric = symmetric;  // which a lambda can capture
    EXPECT_EQ(run_group(kCallRanks, backend,
                        [is_symmetric](ProcessGroup group) {
                          for (const CallKind kind : all_bench_calls()) {
                            expect_checked(
                                group,
                                {.collective = kind, .bytes = 40, .symmetric = is_symmetric});
                          }
                        }),
              no_errors(kCallRanks))
        << backend;
  }
}

TEST(BenchCall, SaysWhatItGotAndWhatItExpected) {
  const std::pair<CallKind, const char*> cases[] = {
      {CallKind::kAllReduce, ": all_reduce of 40 bytes gave 1, expected 2"},
      {CallKind::kAllGather, ": all_gather of 36 bytes gave 0, expected 1"}};
  EXPECT_EQ(run_group(kCallRanks, "shm",
                      [&](ProcessGroup group) {
                        for (const auto& [kind, text] : cases) {
                          BenchCall call(group, {.collective = kind, .bytes = 40});
                          call.write(0);
                          group.barrier();
                          call.run();
                          EXPECT_THAT(
                              message_of<InternalError>([&] { call.check(1); }),
                              ::testing::HasSubstr(lockstep::str("rank ", group.rank(), text)));
                        }
                      }),
            no_errors(kCallRanks));
}

// The sum of true on several ranks is true, not their number.
TEST(BenchCall, ReducesTruthValues) {
  EXPECT_EQ(
      run_group(kCallRanks, "shm",
                [](ProcessGroup group) {
                  for (const CallKind kind : {CallKind::kAllReduce, CallKind::kReduceScatter}) {
                    BenchCall call(group, {.collective = kind, .dtype = torch::kBool, .bytes = 6});
                    for (int number = 0; number < 2; ++number) {
                      call.write(number);
                      group.barrier();
                      call.run();
                      call.check(number);
                    }
                  }
                }),
      no_errors(kCallRanks));
}

// Whole elements, equally many for each rank where the buffer is divided, and at least one.
TEST(BenchCall, RoundsItsBuffers) {
  struct Case {
    CallKind kind;
    torch::ScalarType dtype;
    std::int64_t asked;
    std::int64_t bytes;
  };
  const Case cases[] = {{CallKind::kAllReduce, torch::kFloat32, 40, 40},
                        {CallKind::kAllReduce, torch::kFloat32, 43, 40},
                        {CallKind::kBroadcast, torch::kFloat64, 47, 40},
                        {CallKind::kSend, torch::kFloat32, 1, 4},
                        {CallKind::kAllGather, torch::kFloat32, 40, 36},
                        {CallKind::kReduceScatter, torch::kFloat32, 1, 12},
                        {CallKind::kScatter, torch::kBFloat16, 41, 36},
                        {CallKind::kBarrier, torch::kFloat32, 40, 0}};
  EXPECT_EQ(run_group(kCallRanks, "shm",
                      [&](ProcessGroup group) {
                        for (const Case& each : cases) {
                          const BenchCall call(
                              group,
                              {.collective = each.kind, .dtype = each.dtype, .bytes = each.asked});
                          EXPECT_EQ(call.bytes(), each.bytes) << bench_call_name(each.kind);
                        }
                      }),
            no_errors(kCallRanks));
}

TEST(BenchCall, StartsThreeCollectivesWithoutWaiting) {
  EXPECT_EQ(run_group(kCallRanks, "shm",
                      [](ProcessGroup group) {
                        for (const CallKind kind : all_bench_calls()) {
                          BenchCall call(group, {.collective = kind, .bytes = 48});
                          call.write(1);
                          group.barrier();
                          const WorkPtr work = call.start();
                          const bool starts = kind == CallKind::kAllReduce ||
                                              kind == CallKind::kReduceScatter ||
                                              kind == CallKind::kAllGather;
                          EXPECT_EQ(work != nullptr, starts) << bench_call_name(kind);
                          if (work == nullptr) continue;
                          work->wait();
                          call.check(1);
                        }
                      }),
            no_errors(kCallRanks));
}

// Algorithms of Lockstep's own need room for what they receive.
TEST(BenchCall, KnowsTheMemoryOfAllRanks) {
  EXPECT_EQ(BenchCall::memory_needed({.algorithm = Algorithm::kRing, .bytes = 100}, 4), 1200);
  EXPECT_EQ(BenchCall::memory_needed({.algorithm = Algorithm::kAuto, .bytes = 100}, 2), 600);
  EXPECT_EQ(BenchCall::memory_needed({.algorithm = Algorithm::kNative, .bytes = 100}, 4), 800);
}

TEST(BenchCall, HasATypeOfLibTorchForEachTypeButBytes) {
  using lockstep::detail::DataType;
  const std::pair<DataType, torch::ScalarType> types[] = {
      {DataType::kFloat32, torch::kFloat32}, {DataType::kFloat64, torch::kFloat64},
      {DataType::kFloat16, torch::kFloat16}, {DataType::kBFloat16, torch::kBFloat16},
      {DataType::kInt8, torch::kInt8},       {DataType::kInt16, torch::kInt16},
      {DataType::kInt32, torch::kInt32},     {DataType::kInt64, torch::kInt64},
      {DataType::kUInt8, torch::kUInt8},     {DataType::kBool, torch::kBool}};
  for (const auto& [type, expected] : types) {
    EXPECT_EQ(scalar_type_of(type), expected) << lockstep::detail::data_type_name(type);
  }
  EXPECT_THROW(scalar_type_of(DataType::kByte), InternalError);
}

// Ranks of one host wait for each other in shared memory, whatever transport is measured.
TEST(BenchGroup, MeetsInSharedMemoryAndGathersEachRanksNumbers) {
  for (const char* backend : {"gloo", "shm"}) {
    EXPECT_EQ(run_group(2, backend,
                        [](ProcessGroup group) {
                          ProcessGroup start_line =
                              make_start_line(group, std::chrono::seconds(30));
                          EXPECT_EQ(start_line.backend(), "shm");
                          EXPECT_EQ(start_line.rank(), group.rank());
                          EXPECT_EQ(start_line.size(), 2);
                          EXPECT_EQ(agree(start_line, kLarge + group.rank()), kLarge);
                          const std::vector<double> mine = {1.5 + group.rank(), -0.25};
                          EXPECT_THAT(gather_all(start_line, mine),
                                      ::testing::ElementsAre(std::vector<double>{1.5, -0.25},
                                                             std::vector<double>{2.5, -0.25}));
                        }),
              no_errors(2))
        << backend;
  }
}

}  // namespace
}  // namespace lockstep::bench
