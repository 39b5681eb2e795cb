// Every collective, type and operation of the shared-memory engine, compared with a single process.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/group/collective_oracle.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using namespace testing_support;

constexpr CallKind kAllKinds[] = {
    CallKind::kBarrier,   CallKind::kBroadcast,     CallKind::kReduce,
    CallKind::kAllReduce, CallKind::kGather,        CallKind::kAllGather,
    CallKind::kScatter,   CallKind::kReduceScatter, CallKind::kAllToAll};

struct Case {
  int size;
  std::size_t count;
  detail::DataType type;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.size << " ranks, " << c.count << " of " << detail::data_type_name(c.type);
}

std::vector<CallDescription> calls_of(const Case& c) {
  std::vector<CallDescription> calls;
  for (const CallKind kind : kAllKinds) {
    for (int root = 0; root < c.size; root += std::max(1, c.size - 1)) {
      CallDescription call{.kind = kind, .type = c.type, .root = root, .count = c.count};
      if (kind == CallKind::kBarrier) call.count = 0;
      calls.push_back(call);
    }
  }
  return calls;
}

class ShmCollectives : public testing::TestWithParam<Case> {};

TEST_P(ShmCollectives, GiveWhatOneProcessComputes) {
  const Case c = GetParam();
  const ShmGroup group(c.size, {.slot_bytes = 4096, .small_bytes = 512});
  const auto errors = run_threads(c.size, [&](int rank) {
    auto engine = group.engine(rank);
    std::uint64_t number = 0;
    for (const CallDescription& call : calls_of(c)) {
      auto memory = buffers(call, rank, c.size, number);
      const bool in_place = is_in_place(call.kind);
      const auto ticket =
          engine->post(call, number, in_place ? memory.output_data() : memory.input_data(),
                       memory.output_data());
      engine->wait(ticket, kTimeout);
      require_expected(call, memory.output, rank, c.size, number++);
    }
    engine->wait(engine->post({.kind = CallKind::kBarrier}, number, nullptr, nullptr), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(c.size));
}

// The average moves by an eighth, and streaming stores are worth it above 100 ns.
TEST(SharingCost, IsAMovingAverage) {
  constexpr std::uint32_t kNanosecond = 1024;
  Word word{100 * kNanosecond};
  EXPECT_FALSE(SharingCost::is_dear(word));
  word = 100 * kNanosecond + 1;
  EXPECT_TRUE(SharingCost::is_dear(word));
  SharingCost cost(word);
  const std::byte byte{};
  word = 8'000'000;
  cost.note(&byte);
  EXPECT_GE(word.load(), 7'000'000U);
  EXPECT_LE(word.load(), 7'000'000U + 2000 * kNanosecond / 8) << "no sample is above 2 us";
  word = 0;
  cost.note(&byte);
  EXPECT_LE(word.load(), 2000 * kNanosecond / 8);
}

// Streaming stores, which are used if the processors do not share a cache. The engine measures
// this, so most machines would not run this path without the test's setting.
TEST(ShmStreaming, GivesWhatOneProcessComputes) {
  for (const int size : {2, 3}) {
    const ShmGroup group(size, {.slot_bytes = std::size_t{64} << 10});
    const Control control(group.control->data(), size, group.options.slot_bytes);
    const auto errors = run_threads(size, [&](int rank) {
      auto engine = group.engine(rank);
      std::uint64_t number = 0;
      for (const CallDescription& call : calls_of({size, 40'000, detail::DataType::kFloat32})) {
        constexpr std::uint32_t kVeryDear = 1'000'000'000;  // about 1 ms
        control.state(rank).sharing_cost.store(kVeryDear, std::memory_order_relaxed);
        auto memory = buffers(call, rank, size, number);
        const bool in_place = is_in_place(call.kind);
        engine->wait(
            engine->post(call, number, in_place ? memory.output_data() : memory.input_data(),
                         memory.output_data()),
            kTimeout);
        require_expected(call, memory.output, rank, size, number++);
      }
      engine->wait(engine->post({.kind = CallKind::kBarrier}, number, nullptr, nullptr), kTimeout);
    });
    EXPECT_EQ(errors, no_errors(size));
  }
}

TEST_P(ShmCollectives, WorkInPlaceInSymmetricMemory) {
  const Case c = GetParam();
  const ShmGroup group(c.size, {.slot_bytes = 4096, .small_bytes = 512});
  const auto errors = run_threads(c.size, [&](int rank) {
    auto engine = group.engine(rank);
    const auto ranks = static_cast<std::size_t>(c.size);
    const std::size_t bytes =
        std::max<std::size_t>(1, ranks * c.count * detail::element_size(c.type));
    const auto input = engine->allocate(bytes, kTimeout);
    const auto output = engine->allocate(bytes, kTimeout);
    std::uint64_t number = 0;
    for (const CallDescription& call : calls_of(c)) {
      for (const bool own_place : {false, true}) {
        const auto mine = given(call, rank, c.size, number);
        const auto wanted = expected(call, rank, c.size, number);
        std::byte* from = is_in_place(call.kind) ? output.get() : input.get();
        if (own_place && call.kind == CallKind::kAllGather) {
          from = output.get() + static_cast<std::size_t>(rank) * mine.size();
        }
        std::copy(mine.begin(), mine.end(), from);
        // All ranks have written before any rank reads.
        engine->wait(engine->post(call, number, from, output.get()), kTimeout);
        require_expected(call, Bytes(output.get(), output.get() + wanted.size()), rank, c.size,
                         number++);
        engine->wait(engine->post({.kind = CallKind::kBarrier}, number, nullptr, nullptr),
                     kTimeout);
      }
    }
  });
  EXPECT_EQ(errors, no_errors(c.size));
}

// A blocking call polls for a moment, in which only a sum of a few float32 has a path of its own.
// The peer has arrived, so that this path is taken wherever it may be.
TEST(ShmRuns, GiveWhatOneProcessComputes) {
  std::vector<CallDescription> calls;
  for (int t = 0; t <= static_cast<int>(detail::DataType::kBool); ++t) {
    const auto more = calls_of({2, 3, static_cast<detail::DataType>(t)});
    calls.insert(calls.end(), more.begin(), more.end());
  }
  for (const ReduceOp& op : {ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::premultiplied_sum(0.25)}) {
    calls.push_back({.kind = CallKind::kAllReduce,
                     .type = detail::DataType::kFloat32,
                     .op = op,
                     .root = -1,
                     .count = 3});
  }
  ShmGroup group(2, {.slot_bytes = 4096, .small_bytes = 512});
  group.options.patience.spin = std::chrono::microseconds(1);
  const auto engine = group.engine(0), peer = group.engine(1);
  std::uint64_t number = 0;
  for (const CallDescription& call : calls) {
    auto mine = buffers(call, 0, 2, number), theirs = buffers(call, 1, 2, number);
    const bool in_place = is_in_place(call.kind);
    const auto ticket = peer->post(
        call, number, in_place ? theirs.output_data() : theirs.input_data(), theirs.output_data());
    int meanwhile = 0;
    engine->run(call, number, in_place ? mine.output_data() : mine.input_data(), mine.output_data(),
                kTimeout, [&] { ++meanwhile; });
    peer->wait(ticket, kTimeout);
    EXPECT_EQ(meanwhile, 1);
    require_expected(call, mine.output, 0, 2, number);
    require_expected(call, theirs.output, 1, 2, number++);
  }
}

// Sums that are not small are computed in two stages, in which each rank waits for the other.
TEST(ShmRuns, TakeTheStagesThatTheirPeersTake) {
  ShmGroup group(2, {.slot_bytes = 4096, .small_bytes = 8});
  group.options.patience.spin = std::chrono::microseconds(1);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::uint64_t number = 0;
    for (const std::size_t count : {1U, 2U, 3U, 60U, 2000U}) {
      const CallDescription call{
          .kind = CallKind::kAllReduce, .type = detail::DataType::kFloat32, .count = count};
      auto memory = buffers(call, rank, 2, number);
      std::byte* const data = memory.output_data();
      if (rank == 0) {
        engine->run(call, number, data, data, kTimeout, [] {});
      } else {
        engine->wait(engine->post(call, number, data, data), kTimeout);
      }
      require_expected(call, memory.output, rank, 2, number++);
    }
    engine->wait(engine->post({.kind = CallKind::kBarrier}, number, nullptr, nullptr), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// ThreadSanitizer makes each access ten times as slow. Under it, the largest tensors have a tenth
// of the elements, which still fill many slots, and there are at most eight ranks.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kMany = 10'001;
#else
constexpr std::size_t kMany = 100'001;
INSTANTIATE_TEST_SUITE_P(ManyRanks, ShmCollectives,
                         testing::Values(Case{17, 1000, detail::DataType::kFloat32},
                                         Case{64, 100, detail::DataType::kFloat32}));
#endif

INSTANTIATE_TEST_SUITE_P(
    Sizes, ShmCollectives,
    testing::Values(
        Case{1, 5, detail::DataType::kFloat32}, Case{2, 0, detail::DataType::kFloat32},
        Case{2, 1, detail::DataType::kFloat32}, Case{2, 17, detail::DataType::kFloat64},
        // The most that travels beside its counter, the most that is small, and one more of each.
        Case{2, Arrival::kInlineBytes, detail::DataType::kUInt8},
        Case{2, Arrival::kInlineBytes + 1, detail::DataType::kUInt8},
        Case{3, Arrival::kInlineBytes / 4, detail::DataType::kFloat32},
        Case{3, Arrival::kInlineBytes / 4 + 1, detail::DataType::kFloat32},
        Case{3, 512, detail::DataType::kUInt8}, Case{3, 513, detail::DataType::kUInt8},
        Case{2, 1023, detail::DataType::kFloat32}, Case{2, 1024, detail::DataType::kFloat32},
        Case{2, kMany, detail::DataType::kFloat32}, Case{2, 3000, detail::DataType::kFloat16},
        Case{2, 3001, detail::DataType::kBFloat16}, Case{2, 9999, detail::DataType::kBool},
        Case{3, 7, detail::DataType::kInt64}, Case{3, 5000, detail::DataType::kFloat32},
        Case{3, 5001, detail::DataType::kInt8}, Case{4, 33, detail::DataType::kInt16},
        Case{4, 20000, detail::DataType::kFloat32}, Case{5, 4099, detail::DataType::kUInt8},
        Case{8, 4099, detail::DataType::kInt32}));

// Every operation on every type for which it is defined.
TEST(ShmReductions, KnowEveryTypeAndOperation) {
  constexpr int kSize = 3;
  const ReduceOp ops[] = {
      ReduceOp::kSum,       ReduceOp::kAverage,    ReduceOp::kProduct,
      ReduceOp::kMin,       ReduceOp::kMax,        ReduceOp::kBitwiseAnd,
      ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(0.25)};
  const ShmGroup group(kSize, {.slot_bytes = 4096, .small_bytes = 64});
  const auto errors = run_threads(kSize, [&](int rank) {
    auto engine = group.engine(rank);
    std::uint64_t number = 0;
    for (int t = 0; t <= static_cast<int>(detail::DataType::kBool); ++t) {
      const auto type = static_cast<detail::DataType>(t);
      for (const ReduceOp& op : ops) {
        if (!comm::why_not_reducible(type, op).empty()) continue;
        for (const CallKind kind : {CallKind::kAllReduce, CallKind::kReduceScatter}) {
          for (const std::size_t count : {3, 1000}) {
            const CallDescription call{
                .kind = kind, .type = type, .op = op, .root = -1, .count = count};
            auto memory = buffers(call, rank, kSize, number);
            engine->wait(
                engine->post(call, number,
                             is_in_place(kind) ? memory.output_data() : memory.input_data(),
                             memory.output_data()),
                kTimeout);
            require_expected(call, memory.output, rank, kSize, number++);
          }
        }
      }
    }
    engine->wait(engine->post({.kind = CallKind::kBarrier}, number, nullptr, nullptr), kTimeout);
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

}  // namespace
}  // namespace lockstep::shm
