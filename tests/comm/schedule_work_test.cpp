// All-reduce over point-to-point: values, types, errors, progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/algorithms/schedule.h>
#include <lockstep/comm/algorithms/schedule_work.h>
#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/loopback_backend.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::Loopback;
using testing_support::LoopbackBackend;
using testing_support::no_errors;
using testing_support::run_threads;

const std::vector<Algorithm> kAlgorithms = {Algorithm::kReduceBroadcast, Algorithm::kAllToAll,
                                            Algorithm::kRing, Algorithm::kHalvingDoubling,
                                            Algorithm::kTree};
const std::vector<torch::ScalarType> kTypes = {
    torch::kFloat32, torch::kFloat64, torch::kHalf,  torch::kBFloat16, torch::kInt8,
    torch::kInt16,   torch::kInt32,   torch::kInt64, torch::kUInt8,    torch::kBool};
const std::vector<ReduceOp> kOps = {
    ReduceOp::kSum,       ReduceOp::kAverage,    ReduceOp::kProduct,
    ReduceOp::kMin,       ReduceOp::kMax,        ReduceOp::kBitwiseAnd,
    ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(0.5)};

// The ranks of one group, all in this thread.
class Ranks {
 public:
  explicit Ranks(int size) : size_(size), loopback_(std::make_shared<Loopback>()) {
    for (int rank = 0; rank < size; ++rank) {
      backends_.push_back(std::make_shared<LoopbackBackend>(loopback_, rank));
    }
  }

  std::shared_ptr<Work> start(int rank, Algorithm algorithm, torch::Tensor tensor, ReduceOp op,
                              std::uint32_t operation = 0,
                              std::shared_ptr<Progress> progress = nullptr,
                              Trace* trace = nullptr) {
    return start_all_reduce(algorithm, backends_[static_cast<std::size_t>(rank)],
                            std::move(progress), rank, size_, operation, std::move(tensor), op,
                            trace);
  }

  // Polls one rank after another until all are done.
  void run(Algorithm algorithm, std::vector<torch::Tensor>& tensors, ReduceOp op) {
    std::vector<std::shared_ptr<Work>> works;
    for (int rank = 0; rank < size_; ++rank) {
      works.push_back(start(rank, algorithm, tensors[static_cast<std::size_t>(rank)], op));
    }
    finish(works);
  }

  static void finish(const std::vector<std::shared_ptr<Work>>& works) {
    for (bool all = false; !all;) {
      all = true;
      for (const auto& work : works) all = work->is_completed() && all;
    }
    for (const auto& work : works) work->wait();
  }

  Loopback& loopback() { return *loopback_; }
  LoopbackBackend& backend(int rank) { return *backends_[static_cast<std::size_t>(rank)]; }

 private:
  const int size_;
  const std::shared_ptr<Loopback> loopback_;
  std::vector<std::shared_ptr<LoopbackBackend>> backends_;
};

// Small integers are exact in every type and for every order of operations.
torch::Tensor values_of(int rank, std::int64_t count, torch::ScalarType type) {
  const auto numbers = (torch::arange(count) * 5 + rank * 3) % 7;
  if (type == torch::kBool) return numbers > 2;
  return numbers.to(type);
}

torch::Tensor expected_of(std::vector<torch::Tensor> tensors, ReduceOp op, torch::ScalarType type) {
  const bool is_bool = type == torch::kBool, is_float = torch::isFloatingType(type);
  for (auto& tensor : tensors) tensor = tensor.to(is_float ? torch::kFloat64 : torch::kInt64);
  torch::Tensor result = tensors[0].clone();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const torch::Tensor& next = tensors[i];
    switch (op.kind) {
      case ReduceOp::Kind::kProduct:
        result = result * next;
        break;
      case ReduceOp::Kind::kMin:
        result = torch::minimum(result, next);
        break;
      case ReduceOp::Kind::kMax:
        result = torch::maximum(result, next);
        break;
      case ReduceOp::Kind::kBitwiseAnd:
        result = result.bitwise_and(next);
        break;
      case ReduceOp::Kind::kBitwiseOr:
        result = result.bitwise_or(next);
        break;
      case ReduceOp::Kind::kBitwiseXor:
        result = result.bitwise_xor(next);
        break;
      default:
        result = result + next;
    }
  }
  if (op.kind == ReduceOp::Kind::kAverage) result = result / static_cast<double>(tensors.size());
  if (op.kind == ReduceOp::Kind::kPreMultipliedSum) result = result * op.factor;
  return is_bool ? result.ne(0) : result.to(type);
}

TEST(ScheduleWork, ReducesEveryTypeByEveryOperation) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const auto type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (!why_not_reducible(data_type_of(type), op).empty()) continue;
        for (const int size : {1, 2, 4, 5}) {
          std::vector<torch::Tensor> tensors;
          for (int rank = 0; rank < size; ++rank) tensors.push_back(values_of(rank, 21, type));
          const torch::Tensor expected = expected_of(tensors, op, type);
          Ranks(size).run(algorithm, tensors, op);
          for (const torch::Tensor& tensor : tensors) {
            // One fifth has no exact binary representation.
            ASSERT_TRUE(op == ReduceOp::kAverage ? torch::allclose(tensor, expected, 1e-2)
                                                 : torch::equal(tensor, expected))
                << algorithm_name(algorithm) << " " << toString(type) << " "
                << reduce_op_name(op.kind) << " of " << size << ": got " << tensor << ", expected "
                << expected;
            ASSERT_TRUE(torch::equal(tensor, tensors[0]));
          }
        }
      }
    }
  }
}

TEST(ScheduleWork, TakesAnyNumberOfElements) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::int64_t count : {0, 1, 2, 3, 100'000}) {
      std::vector<torch::Tensor> tensors;
      for (int rank = 0; rank < 3; ++rank) tensors.push_back(values_of(rank, count, torch::kInt64));
      const torch::Tensor expected = tensors[0] + tensors[1] + tensors[2];
      Ranks ranks(3);
      ranks.run(algorithm, tensors, ReduceOp::kSum);
      for (const auto& tensor : tensors) ASSERT_TRUE(torch::equal(tensor, expected));
      EXPECT_TRUE(ranks.loopback().idle());
    }
  }
}

// The bits of these results depend on the order of the operations. With all-to-all, each rank
// combines all values itself.
TEST(ScheduleWork, GivesEveryRankTheSameBits) {
  constexpr int kSize = 5;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
      std::vector<torch::Tensor> tensors;
      for (int rank = 0; rank < kSize; ++rank) {
        tensors.push_back((torch::arange(500) * 0.37 + rank * 11).cos() + 1.1);
      }
      torch::Tensor in_rank_order = tensors[0].clone();
      for (std::size_t i = 1; i < kSize; ++i) {
        in_rank_order =
            op == ReduceOp::kSum ? in_rank_order + tensors[i] : in_rank_order * tensors[i];
      }
      Ranks(kSize).run(algorithm, tensors, op);
      for (const torch::Tensor& tensor : tensors) {
        EXPECT_TRUE(torch::equal(tensor, tensors[0])) << algorithm_name(algorithm);
      }
      EXPECT_TRUE(torch::allclose(tensors[0], in_rank_order)) << algorithm_name(algorithm);
      if (algorithm == Algorithm::kAllToAll || algorithm == Algorithm::kReduceBroadcast) {
        EXPECT_TRUE(torch::equal(tensors[0], in_rank_order)) << algorithm_name(algorithm);
      }
    }
  }
}

// In float16, 2048 + 1 is 2048; in bfloat16, 256 + 1 is 256. One rank has the large value, and all
// others have 1.
TEST(ScheduleWork, AddsSixteenBitFloatsInFloat32) {
  const std::pair<torch::ScalarType, double> large_values[] = {{torch::kHalf, 2048},
                                                               {torch::kBFloat16, 256}};
  for (const auto& [type, large] : large_values) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::premultiplied_sum(0.5)}) {
        for (const int size : {3, 5}) {
          for (int place = 0; place < size; ++place) {
            std::vector<torch::Tensor> tensors;
            for (int rank = 0; rank < size; ++rank) {
              tensors.push_back(torch::full({9}, rank == place ? large : 1.0, type));
            }
            const torch::Tensor expected = expected_of(tensors, op, type);
            Ranks(size).run(algorithm, tensors, op);
            for (const auto& tensor : tensors) {
              ASSERT_TRUE(torch::equal(tensor, expected))
                  << algorithm_name(algorithm) << " " << toString(type) << " "
                  << reduce_op_name(op.kind) << " of " << size << ", large on " << place << ": got "
                  << tensor << ", expected " << expected;
            }
          }
        }
      }
    }
  }
}

TEST(ScheduleWork, WaitsOnThreads) {
  constexpr int kSize = 6;
  const auto loopback = std::make_shared<Loopback>();
  const auto errors = run_threads(kSize, [&](int rank) {
    const auto backend = std::make_shared<LoopbackBackend>(loopback, rank);
    std::uint32_t operation = 0;
    for (int round = 0; round < 20; ++round) {
      for (const Algorithm algorithm : kAlgorithms) {
        torch::Tensor tensor = torch::full({1000}, rank + round, torch::kFloat32);
        start_all_reduce(algorithm, backend, nullptr, rank, kSize, operation++, tensor,
                         ReduceOp::kSum)
            ->wait(std::chrono::seconds(20));
        LOCKSTEP_CHECK(torch::equal(tensor, torch::full({1000}, 15.0 + kSize * round)),
                       "wrong sum");
      }
    }
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

// Messages of several operations between the same ranks are distinguished by their tags.
TEST(ScheduleWork, KeepsOperationsInFlightApart) {
  Ranks ranks(4);
  std::vector<std::shared_ptr<Work>> works;
  std::vector<torch::Tensor> tensors;
  for (std::uint32_t operation = 0; operation < 5; ++operation) {
    for (int rank = 0; rank < 4; ++rank) {
      tensors.push_back(torch::full({10}, static_cast<int>(operation) + 1, torch::kInt64));
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    // Each rank starts the operations in a different order.
    for (std::uint32_t i = 0; i < 5; ++i) {
      const std::uint32_t operation = (i + static_cast<std::uint32_t>(rank)) % 5;
      works.push_back(ranks.start(rank, kAlgorithms[operation],
                                  tensors[operation * 4 + static_cast<std::uint32_t>(rank)],
                                  ReduceOp::kSum, operation));
    }
  }
  Ranks::finish(works);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i][9].item<std::int64_t>(), 4 * (static_cast<std::int64_t>(i) / 4 + 1));
  }
}

TEST(ScheduleWork, MovesWithProgressAndWithoutItsHandle) {
  Ranks ranks(3);
  const auto progress = std::make_shared<Progress>();
  std::vector<torch::Tensor> tensors;
  std::weak_ptr<Work> work;
  for (int rank = 0; rank < 3; ++rank) {
    tensors.push_back(torch::full({30}, rank + 1.0F));
    work = ranks.start(rank, Algorithm::kRing, tensors.back(), ReduceOp::kAverage, 0, progress);
  }
  EXPECT_FALSE(work.expired());
  while (progress->advance(nullptr)) continue;
  for (const auto& tensor : tensors) EXPECT_TRUE(torch::equal(tensor, torch::full({30}, 2.0F)));
  EXPECT_TRUE(work.expired());
}

TEST(ScheduleWork, TakesOnTheErrorOfATransfer) {
  struct Case {
    std::exception_ptr error;
    bool is_timeout;
  };
  for (const Case& each :
       {Case{std::make_exception_ptr(CommError("rank 1 died")), false},
        Case{std::make_exception_ptr(TimeoutError("rank 1 did not come")), true}}) {
    Ranks ranks(2);
    torch::Tensor tensor = torch::ones({8});
    const auto work = ranks.start(0, Algorithm::kRing, tensor, ReduceOp::kSum);
    EXPECT_FALSE(work->is_completed());
    EXPECT_EQ(work->error(), nullptr);
    ranks.loopback().break_rank(1, each.error);
    EXPECT_TRUE(work->is_completed());
    EXPECT_NE(work->error(), nullptr);
    try {
      work->wait();
      FAIL() << "no error";
    } catch (const CommError& error) {
      EXPECT_EQ(dynamic_cast<const TimeoutError*>(&error) != nullptr, each.is_timeout);
      EXPECT_THAT(error.what(),
                  HasSubstr("all_reduce[float32, 8, by ring], step 1 of 2: rank 1 di"));
    }
  }
}

TEST(ScheduleWork, KeepsADeadline) {
  Ranks ranks(2);
  const auto work = ranks.start(0, Algorithm::kTree, torch::ones({8}), ReduceOp::kSum);
  EXPECT_THROW(work->wait(std::chrono::milliseconds(10)), TimeoutError);
  EXPECT_THROW(work->wait(), TimeoutError);  // every wait fails
}

// A transfer that takes all the time that a wait gives it and then succeeds.
class LastMomentWork final : public Work {
 public:
  explicit LastMomentWork(std::vector<std::chrono::milliseconds>& limits) : limits_(limits) {}
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    limits_.push_back(timeout.value());
    const Deadline deadline(*timeout);
    while (!deadline.expired()) std::this_thread::yield();
    is_done_ = true;
  }
  bool is_completed() override { return is_done_; }
  std::exception_ptr error() const override { return nullptr; }

 private:
  std::vector<std::chrono::milliseconds>& limits_;
  bool is_done_ = false;
};

class LastMomentBackend final : public Backend {
 public:
  const std::string& name() const override { return name_; }
  std::shared_ptr<Work> start(const Collective&) override {
    throw InternalError("point-to-point only");
  }
  std::shared_ptr<Work> send(torch::Tensor, int, MessageTag) override {
    return std::make_shared<LastMomentWork>(limits);
  }
  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int>, MessageTag) override {
    tensor.zero_();
    return std::make_shared<LastMomentWork>(limits);
  }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, dtype);
  }
  void abort(const std::string&) override {}
  void check() override {}
  Watchdog* watchdog() override { return its_watchdog; }

  std::vector<std::chrono::milliseconds> limits{};  // the timeouts of all waits for transfers
  Watchdog* its_watchdog = nullptr;

 private:
  const std::string name_ = "last moment";
};

// The first transfer takes the whole timeout, so that the others get none of it.
TEST(ScheduleWork, DividesItsTimeoutAmongItsTransfers) {
  constexpr std::chrono::milliseconds kTimeout{2};
  for (const Algorithm algorithm : kAlgorithms) {
    const auto backend = std::make_shared<LastMomentBackend>();
    start_all_reduce(algorithm, backend, nullptr, /*rank=*/0, /*size=*/4, /*operation=*/0,
                     torch::ones({8}), ReduceOp::kSum, nullptr)
        ->wait(kTimeout);
    ASSERT_GT(backend->limits.size(), 1U) << algorithm_name(algorithm);
    EXPECT_LE(backend->limits[0], kTimeout);
    backend->limits.erase(backend->limits.begin());
    EXPECT_THAT(backend->limits, Each(std::chrono::milliseconds(0))) << algorithm_name(algorithm);
  }
}

// To the watchdog, the whole operation is one call.
TEST(ScheduleWork, IsWhatTheRankIsInUntilItEnds) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const WatchdogOptions options{.beat = std::chrono::milliseconds(20)};
  Watchdog own(store, 0, 2, options), peer(store, 1, 2, options);
  const auto is_read = [&](const std::string& words) {
    const Deadline deadline(std::chrono::seconds(10));
    while (peer.whereabouts() != words && !deadline.expired()) {
      peer.wait_for_news(std::chrono::milliseconds(100));
    }
    return peer.whereabouts() == words;
  };
  const auto backend = std::make_shared<LastMomentBackend>();
  backend->its_watchdog = &own;
  const auto work = start_all_reduce(Algorithm::kRing, backend, nullptr, /*rank=*/0, /*size=*/2,
                                     /*operation=*/7, torch::ones({8}, torch::kFloat64),
                                     ReduceOp::kAverage, nullptr);
  EXPECT_TRUE(is_read("rank 0 is in all_reduce[float64, 8, average, by ring] (operation 7)"))
      << peer.whereabouts();
  work->wait(std::chrono::milliseconds(2));
  EXPECT_TRUE(
      is_read("rank 0 last completed all_reduce[float64, 8, average, by ring] (operation 7)"))
      << peer.whereabouts();
}

// A program may keep the Work for longer than the operation takes.
TEST(ScheduleWork, ThatHasEndedHoldsNoTensorAndNeedsNoHand) {
  for (const bool fails : {false, true}) {
    Ranks ranks(2);
    const auto tensor = torch::ones({8});
    const auto work = ranks.start(0, Algorithm::kRing, tensor, ReduceOp::kSum);
    auto* const moves = dynamic_cast<Progressing*>(work.get());
    ASSERT_NE(moves, nullptr);
    EXPECT_TRUE(moves->needs_a_hand());
    EXPECT_GT(tensor.use_count(), 1U);
    EXPECT_GT(tensor.storage().use_count(), 1U);
    if (fails) {
      ranks.loopback().break_rank(1, std::make_exception_ptr(CommError("rank 1 died")));
      EXPECT_TRUE(work->is_completed());
    } else {
      Ranks::finish({work, ranks.start(1, Algorithm::kRing, torch::ones({8}), ReduceOp::kSum)});
    }
    EXPECT_EQ(work->error() != nullptr, fails);
    EXPECT_FALSE(moves->needs_a_hand());
    EXPECT_FALSE(moves->advance());
    EXPECT_EQ(tensor.use_count(), 1U);
    EXPECT_EQ(tensor.storage().use_count(), 1U);
  }
}

TEST(ScheduleWork, EndsTheGroupWhenItFailsByItself) {
  Ranks ranks(2);
  ranks.backend(0).fail_next_send = true;
  const auto work = ranks.start(0, Algorithm::kRing, torch::ones({8}), ReduceOp::kSum);
  EXPECT_TRUE(work->is_completed());
  EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_THAT(ranks.backend(0).abort_reason, HasSubstr("step 1 of 2: the send that was to fail"));
}

TEST(ScheduleWork, TracesWhatTheScheduleSays) {
  for (const Algorithm algorithm : kAlgorithms) {
    constexpr int kSize = 4;
    Ranks ranks(kSize);
    std::vector<Trace> traces(kSize);
    std::vector<torch::Tensor> tensors(kSize);
    std::vector<std::shared_ptr<Work>> works;
    for (int rank = 0; rank < kSize; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      tensors[r] = torch::ones({100});
      const TraceScope scope(traces[r]);
      works.push_back(ranks.start(rank, algorithm, tensors[r], ReduceOp::kSum));
    }
    Ranks::finish(works);
    const auto schedules = make_schedules(algorithm, {.size = kSize, .count = 100});
    for (std::size_t r = 0; r < kSize; ++r) {
      std::size_t sent = 0, received = 0, reduced = 0, reductions = 0;
      for (const TraceEvent& event : traces[r].events) {
        EXPECT_LE(traces[r].start_ns, event.start_ns);
        EXPECT_LE(event.start_ns, event.end_ns);
        EXPECT_LE(event.end_ns, traces[r].end_ns);
        if (event.kind == TraceEvent::Kind::kSend) sent += event.bytes;
        if (event.kind == TraceEvent::Kind::kReceive) received += event.bytes;
        if (event.kind != TraceEvent::Kind::kReduce) continue;
        reduced += event.bytes;
        ++reductions;
      }
      EXPECT_EQ(sent, 4 * elements_sent(schedules[r]));
      EXPECT_EQ(received, 4 * elements_received(schedules[r]));
      std::size_t reducing_steps = 0, to_reduce = 0;
      for (const ScheduleStep& step : schedules[r]) {
        if (!step.receives.empty() && step.receives[0].then == OnArrival::kReduce) ++reducing_steps;
        for (const ScheduledReceive& receive : step.receives) {
          if (receive.then == OnArrival::kReduce) to_reduce += receive.range.count;
        }
      }
      EXPECT_EQ(reductions, reducing_steps) << algorithm_name(algorithm);
      EXPECT_EQ(reduced, 4 * to_reduce) << algorithm_name(algorithm);
    }
  }
}

TEST(MessageTag, OfACollectiveIsNegativeAndReturnsLate) {
  const auto value = [](std::uint64_t number) {
    return MessageTag::of_collective(number, 7).value;
  };
  EXPECT_EQ(value(0), -1);
  EXPECT_EQ(value(1), -2);
  EXPECT_EQ(value((1U << 30) - 1), -(1 << 30));
  EXPECT_EQ(value(1U << 30), -1);
  EXPECT_LT(value(~std::uint64_t{0}), 0);
}

TEST(ChooseAlgorithm, TakesOursWhereABackendWouldGatherMuch) {
  constexpr std::size_t kLittle = 4096, kMuch = 100'000'000;
  for (const int ranks : {2, 3, 8}) {
    EXPECT_EQ(choose_algorithm(/*gathers=*/true, ranks, kMuch),
              ranks == 2 ? Algorithm::kAllToAll : Algorithm::kRing);
    EXPECT_EQ(choose_algorithm(/*gathers=*/true, ranks, kLittle), Algorithm::kNative);
  }
}

TEST(ChooseAlgorithm, LeavesReductionsThatABackendHasToIt) {
  for (const std::size_t bytes : {4U, 1U << 20, 1U << 28}) {
    EXPECT_EQ(choose_algorithm(/*gathers=*/false, 4, bytes), Algorithm::kNative);
  }
}

TEST(Gloo, GathersForSmallIntegersAndExtremesOfFloats) {
  for (int type = 0; type < static_cast<int>(detail::DataType::kByte); ++type) {
    for (const ReduceOp op : kOps) {
      const auto data_type = static_cast<detail::DataType>(type);
      if (!why_not_reducible(data_type, op).empty()) continue;
      const bool is_extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
      EXPECT_EQ(gloo::reduces(data_type, op),
                data_type != detail::DataType::kInt16 &&
                    !(is_extreme && detail::is_floating_point(data_type)))
          << detail::data_type_name(data_type) << " " << reduce_op_name(op.kind);
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
