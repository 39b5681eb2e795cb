// The schedules of the all-reduce algorithms, executed in one thread and counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/comm/algorithms/cost_model.h>
#include <lockstep/comm/algorithms/schedule.h>
#include <lockstep/comm/algorithms/trace.h>
#include <lockstep/core/error.h>
#include <tests/comm/schedule_simulator.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

using testing_support::ScheduleSimulator;

const std::vector<Algorithm> kAlgorithms = {Algorithm::kReduceBroadcast, Algorithm::kAllToAll,
                                            Algorithm::kRing, Algorithm::kHalvingDoubling,
                                            Algorithm::kTree};

std::vector<int> sizes() {
  std::vector<int> sizes(17);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {31, 32, 33, 63, 64});
  return sizes;
}

std::string name_of(Algorithm algorithm, const ScheduleRequest& request) {
  return str(algorithm_name(algorithm), ", ", request.size, " ranks, ", request.count,
             " elements, chunk ", request.chunk);
}

// Calls `check` for every algorithm, number of ranks and element count. Several counts are close to
// the number of ranks.
void for_each_request(const std::function<void(Algorithm, const ScheduleRequest&)>& check) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const int size : sizes()) {
      const auto n = static_cast<std::size_t>(size);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1,
                                      std::size_t{7}, std::size_t{100}, std::size_t{257}}) {
        for (const std::size_t chunk : {std::size_t{0}, std::size_t{1}, std::size_t{33}}) {
          if (chunk == 1 && count > 10) continue;  // slow, and covers nothing new
          check(algorithm, {.size = size, .count = count, .chunk = chunk});
        }
      }
    }
  }
}

TEST(Schedule, GivesEveryRankTheSum) {
  for_each_request([](Algorithm algorithm, const ScheduleRequest& request) {
    std::vector<std::vector<std::int64_t>> data;
    std::vector<std::int64_t> sum(request.count);
    for (int rank = 0; rank < request.size; ++rank) {
      std::vector<std::int64_t> values(request.count);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // One decimal digit per rank would overflow. Multiples of primes distinguish ranks and
        // elements.
        values[i] = (rank + 1) * 1'000'003LL + static_cast<std::int64_t>(i) * 7919 * (rank + 3);
        sum[i] += values[i];
      }
      data.push_back(values);
    }
    ScheduleSimulator<std::int64_t> simulator(make_schedules(algorithm, request), data,
                                              std::plus<>());
    std::vector<std::vector<std::int64_t>> results;
    ASSERT_NO_THROW(results = simulator.run()) << name_of(algorithm, request);
    ASSERT_THAT(results, testing::Each(sum)) << name_of(algorithm, request);
  });
}

// Float additions in another order give different bits, so all ranks must use the same order.
TEST(Schedule, GivesAllRanksTheSameBits) {
  for_each_request([](Algorithm algorithm, const ScheduleRequest& request) {
    std::vector<std::vector<float>> data;
    for (int rank = 0; rank < request.size; ++rank) {
      std::vector<float> values(request.count);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 1.0F / static_cast<float>(3 * rank + 7 * static_cast<int>(i) + 1);
      }
      data.push_back(values);
    }
    ScheduleSimulator<float> simulator(make_schedules(algorithm, request), data, std::plus<>());
    const auto results = simulator.run();
    for (const auto& result : results) {
      const auto same_bits = [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      };
      ASSERT_TRUE(
          std::equal(result.begin(), result.end(), results[0].begin(), results[0].end(), same_bits))
          << name_of(algorithm, request);
    }
  });
}

// The two algorithms that promise the order of a plain loop keep it even if the order matters.
TEST(Schedule, AddsInTheOrderOfTheRanks) {
  for (const Algorithm algorithm : {Algorithm::kReduceBroadcast, Algorithm::kAllToAll}) {
    std::vector<std::vector<std::string>> data;
    for (int rank = 0; rank < 5; ++rank)
      data.push_back({std::string(1, static_cast<char>('a' + rank))});
    ScheduleSimulator<std::string> simulator(make_schedules(algorithm, {.size = 5, .count = 1}),
                                             data, std::plus<>());
    EXPECT_THAT(simulator.run(), testing::Each(testing::ElementsAre("abcde")))
        << algorithm_name(algorithm);
  }
}

TEST(Schedule, OfOneRankOrNoElementIsEmpty) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_TRUE(make_schedule(algorithm, {.size = 1, .count = 10}).empty());
    EXPECT_TRUE(make_schedule(algorithm, {.rank = 2, .size = 4, .count = 0}).empty());
  }
}

TEST(Schedule, IsOnlyOfAlgorithmsOverPointToPoint) {
  for (const Algorithm algorithm : {Algorithm::kNative, Algorithm::kAuto}) {
    EXPECT_THAT(testing_support::message_of<InternalError>(
                    [&] { make_schedule(algorithm, {.size = 2, .count = 1}); }),
                testing::EndsWith(str("no schedule of algorithm ", algorithm_name(algorithm))));
  }
  for (const auto& [rank, size] : {std::pair(2, 2), {-1, 2}, {0, 0}}) {
    EXPECT_THAT(testing_support::message_of<InternalError>([&, rank = rank, size = size] {
                  make_schedule(Algorithm::kRing, {.rank = rank, .size = size, .count = 1});
                }),
                testing::EndsWith(str("schedule of rank ", rank, " of ", size)));
  }
}

// The tests above rely on the simulator to reject a wrong schedule.
TEST(ScheduleSimulator, FindsWhatIsWrong) {
  const auto error_of =
      [](const std::function<void(std::vector<CommSchedule>&)>& spoil) -> std::string {
    auto schedules = make_schedules(Algorithm::kRing, {.size = 2, .count = 4});
    spoil(schedules);
    try {
      ScheduleSimulator<int>(schedules, {{1, 2, 3, 4}, {5, 6, 7, 8}}, std::plus<>()).run();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_EQ(error_of([](auto&) {}), "");
  EXPECT_THAT(error_of([](auto& s) { s[0][0].sends.clear(); }),
              HasSubstr("rank 1, step 0: got a message of step 1"));
  EXPECT_THAT(error_of([](auto& s) { s[1][1].receives.clear(); }), HasSubstr("deadlock"));
  EXPECT_THAT(error_of([](auto& s) { s[0].pop_back(); }), HasSubstr("another number of steps"));
  EXPECT_THAT(error_of([](auto& s) { s[0][0].sends[0].range = {0, 1}; }),
              HasSubstr("other elements"));
  EXPECT_THAT(error_of([](auto& s) { s[0][0].receives[0].range = {3, 2}; }),
              HasSubstr("bad range"));
  EXPECT_THAT(error_of([](auto& s) {
                s[0][0].receives[0].then = OnArrival::kOverwrite;
                s[0][0].receives[0].range = s[0][0].sends[0].range;
              }),
              HasSubstr("overwrites what it sends"));
}

// --- The headers' formulas -----------------------------------------------------------------------

struct Formula {
  Algorithm algorithm;
  std::function<std::size_t(std::size_t n)> steps;      // for n ranks
  std::function<std::size_t(std::size_t n)> most_sent;  // elements of the busiest rank, of n * 64
  std::function<std::size_t(std::size_t n)> total_sent;
};

constexpr std::size_t kPerRank = 64;

std::size_t log2_floor(std::size_t n) { return static_cast<std::size_t>(std::bit_width(n)) - 1; }

// There are kPerRank * n elements. Each of n parts has kPerRank elements, and each of P parts has
// kPerRank * n / P.
const Formula kFormulas[] = {
    {Algorithm::kReduceBroadcast, [](auto n) { return n; },
     [](auto n) { return (n - 1) * kPerRank * n; },
     [](auto n) { return 2 * (n - 1) * kPerRank * n; }},
    {Algorithm::kAllToAll, [](auto) { return std::size_t{1}; },
     [](auto n) { return (n - 1) * kPerRank * n; },
     [](auto n) { return n * (n - 1) * kPerRank * n; }},
    {Algorithm::kRing, [](auto n) { return 2 * (n - 1); },
     [](auto n) { return 2 * (n - 1) * kPerRank; },
     [](auto n) { return 2 * (n - 1) * kPerRank * n; }},
    {Algorithm::kHalvingDoubling,
     [](auto n) { return 2 * log2_floor(n) + (std::has_single_bit(n) ? 0 : 2); },
     [](auto n) {
       const std::size_t p = std::bit_floor(n), count = kPerRank * n;
       return 2 * (p - 1) * count / p + (p == n ? 0 : count);
     },
     [](auto n) {
       const std::size_t p = std::bit_floor(n), count = kPerRank * n;
       return 2 * (p - 1) * count + 2 * (n - p) * count;
     }},
    {Algorithm::kTree, [](auto n) { return 2 * log2_floor(n); },
     [](auto n) {
       return (n == 2 ? 1 : n <= 4 ? 2 : 3) * kPerRank * n;
     },
     [](auto n) { return 2 * (n - 1) * kPerRank * n; }},
};

TEST(Schedule, HasTheStepsAndBytesOfTheFormulas) {
  for (const Formula& formula : kFormulas) {
    for (const std::size_t n : {2U, 3U, 4U, 5U, 6U, 7U, 8U, 12U, 16U, 33U, 64U}) {
      const auto schedules =
          make_schedules(formula.algorithm, {.size = static_cast<int>(n), .count = kPerRank * n});
      std::size_t most = 0, total = 0;
      for (const CommSchedule& schedule : schedules) {
        most = std::max(most, elements_sent(schedule));
        total += elements_sent(schedule);
      }
      const std::string where = str(algorithm_name(formula.algorithm), " of ", n);
      EXPECT_EQ(schedules[0].size(), formula.steps(n)) << where;
      EXPECT_EQ(total, formula.total_sent(n)) << where;
      if (formula.algorithm == Algorithm::kHalvingDoubling && !std::has_single_bit(n)) {
        EXPECT_NEAR(static_cast<double>(most), static_cast<double>(formula.most_sent(n)), 2)
            << where;
      } else {
        EXPECT_EQ(most, formula.most_sent(n)) << where;
      }
    }
  }
}

TEST(Schedule, OfAPipelinedTreeHasAStepMorePerChunk) {
  for (const int size : {2, 3, 7, 8, 20}) {
    const auto height = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size))) - 1;
    const auto schedule =
        make_schedule(Algorithm::kTree, {.size = size, .count = 100, .chunk = 10});
    EXPECT_EQ(schedule.size(), 10 + 2 * height - 1) << size;
  }
}

TEST(Schedule, OfARingReceivesWhatItSends) {
  for (int rank = 0; rank < 6; ++rank) {
    const auto schedule = make_schedule(Algorithm::kRing, {.rank = rank, .size = 6, .count = 60});
    EXPECT_EQ(elements_sent(schedule), 100U);
    EXPECT_EQ(elements_received(schedule), 100U);
    for (const ScheduleStep& step : schedule) {
      ASSERT_EQ(step.sends.size(), 1U);
      EXPECT_EQ(step.sends[0].peer, (rank + 1) % 6);
      EXPECT_EQ(step.receives[0].peer, (rank + 5) % 6);
    }
  }
}

// --- Prediction ----------------------------------------------------------------------------------

struct Predicted {
  Algorithm algorithm;
  std::size_t ranks;
  double alphas, bytes_sent, bytes_added;  // cost of the slowest rank, for 4096 float32
};

const Predicted kPredicted[] = {
    {Algorithm::kRing, 4, 6, 6 * 4096, 3 * 4096},
    {Algorithm::kRing, 8, 14, 14 * 2048, 7 * 2048},
    {Algorithm::kHalvingDoubling, 4, 4, 6 * 4096, 3 * 4096},
    {Algorithm::kHalvingDoubling, 8, 6, 14 * 2048, 7 * 2048},
    {Algorithm::kHalvingDoubling, 5, 6, 6 * 4096 + 2 * 16384, 3 * 4096 + 16384},
    {Algorithm::kAllToAll, 4, 3, 3 * 16384, 3 * 16384},
    {Algorithm::kAllToAll, 7, 6, 6 * 16384, 6 * 16384},
    {Algorithm::kReduceBroadcast, 4, 6, 6 * 16384, 3 * 16384},
    {Algorithm::kTree, 2, 2, 2 * 16384, 16384},
    {Algorithm::kTree, 7, 8, 8 * 16384, 4 * 16384},
};

TEST(CostModel, PredictsWhatTheFormulasSay) {
  const CostModel model{1e-6, 1e-9, 1e-10};
  for (const Predicted& expected : kPredicted) {
    const auto seconds =
        predict_seconds(make_schedules(expected.algorithm,
                                       {.size = static_cast<int>(expected.ranks), .count = 4096}),
                        4, model);
    ASSERT_EQ(seconds.size(), expected.ranks);
    const double want =
        expected.alphas * 1e-6 + expected.bytes_sent * 1e-9 + expected.bytes_added * 1e-10;
    EXPECT_NEAR(*std::max_element(seconds.begin(), seconds.end()), want, want * 1e-9)
        << algorithm_name(expected.algorithm) << " of " << expected.ranks;
  }
}

TEST(CostModel, LetsAPipelineOverlap) {
  const CostModel model{1e-7, 1e-9, 0};
  const auto slowest = [&](std::size_t chunk) {
    const auto seconds = predict_seconds(
        make_schedules(Algorithm::kTree, {.size = 15, .count = 1 << 20, .chunk = chunk}), 4, model);
    return *std::max_element(seconds.begin(), seconds.end());
  };
  EXPECT_LT(slowest(1 << 15), slowest(0) / 2);
}

struct Timed {
  const char* name;
  std::vector<CommSchedule> schedules;  // one for each rank, for elements of two bytes
  std::vector<double> seconds;          // one for each rank
};

// A message of four elements takes 1 s + 8 bytes * 0.5 s; adding it to others takes 8 * 0.25 s.
const Timed kTimed[] = {
    {"a chain",
     {{{.sends = {{1, {0, 4}}}}, {}},
      {{.receives = {{0, {0, 4}}}}, {.sends = {{2, {0, 2}}}}},
      {{}, {.receives = {{1, {0, 2}, OnArrival::kOverwrite}}}}},
     {5, 5 + 2 + 3, 5 + 2 + 3}},
    {"one sends to two, in the order of its step",
     {{{.sends = {{2, {0, 4}}, {1, {0, 4}}}}},
      {{.receives = {{0, {0, 4}, OnArrival::kOverwrite}}}},
      {{.receives = {{0, {0, 4}, OnArrival::kOverwrite}}}}},
     {10, 10, 5}},
    {"two send to one, which adds both at the end",
     {{{.receives = {{1, {0, 4}}, {2, {0, 4}}}}},
      {{.sends = {{0, {0, 4}}}}},
      {{.sends = {{0, {0, 4}}}}}},
     {10 + 2 + 2, 5, 10}},
    {"both directions at once",
     {{{.sends = {{1, {0, 4}}}, .receives = {{1, {4, 4}}}}},
      {{.sends = {{0, {4, 4}}}, .receives = {{0, {0, 4}, OnArrival::kOverwrite}}}}},
     {5 + 2, 5}},
    {"more bytes than 32 bits count",
     {{{.sends = {{1, {0, std::size_t{1} << 33}}}}},
      {{.receives = {{0, {0, std::size_t{1} << 33}}}}}},
     {1 + 0x1p33, 1 + 0x1p33 + 0x1p32}},
};

TEST(CostModel, TimesEachRankByItself) {
  for (const Timed& timed : kTimed) {
    EXPECT_EQ(predict_seconds(timed.schedules, 2, {1, 0.5, 0.25}), timed.seconds) << timed.name;
  }
}

TEST(CostModel, RefusesSchedulesThatNeverEnd) {
  const ScheduleStep sends{.sends = {{1, {0, 4}}}};
  const ScheduleStep receives{.receives = {{0, {0, 4}}}};
  const std::vector<CommSchedule> endless[] = {
      {{sends}, {}}, {{}, {receives}}, {{sends}, {{}, receives}}};
  for (const auto& schedules : endless) {
    EXPECT_THROW(predict_seconds(schedules, 4, {1, 1, 1}), InternalError);
  }
}

TEST(CostModel, PredictsNothingForNothing) {
  EXPECT_THAT(
      predict_seconds(make_schedules(Algorithm::kRing, {.size = 1, .count = 5}), 4, {1, 1, 1}),
      testing::ElementsAre(0.0));
}

// --- Traces --------------------------------------------------------------------------------------

TEST(Trace, TravelsAsText) {
  const Trace trace{10,
                    99,
                    {{TraceEvent::Kind::kReceive, 3, 2, {16, 8}, 32, 11, 12},
                     {TraceEvent::Kind::kReduce, 4, -1, {17, 9}, 36, 13, 14},
                     {TraceEvent::Kind::kSend, 5, 1, {0, 6}, 24, 15, 18}}};
  const std::string text = to_text(trace);
  EXPECT_EQ(text, "10 99 3\n1 3 2 16 8 32 11 12\n2 4 -1 17 9 36 13 14\n0 5 1 0 6 24 15 18\n");
  const Trace copy = trace_from_text(text);
  EXPECT_EQ(copy.start_ns, 10);
  EXPECT_EQ(copy.end_ns, 99);
  ASSERT_EQ(copy.events.size(), 3U);
  const auto fields = [](const TraceEvent& event) {
    return std::tuple(event.kind, event.step, event.peer, event.range.first, event.range.count,
                      event.bytes, event.start_ns, event.end_ns);
  };
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fields(copy.events[i]), fields(trace.events[i]));
  EXPECT_TRUE(trace_from_text(to_text({7, 8})).events.empty());
}

TEST(Trace, MustBeComplete) {
  for (const char* text : {"", "10", "10 99", "10 99 1", "10 99 1\n1 3 2 16 8 32 11",
                           "10 99 1000000000000\n1 3 2 16 8 32 11 12\n"}) {
    EXPECT_THAT(
        testing_support::message_of<InternalError>([&] { trace_from_text(text); }),
        testing::EndsWith(str("a trace of ", std::string(text).size(), " bytes ends early")));
  }
}

TEST(Trace, IsThatOfTheInnermostScope) {
  Trace outer, inner;
  EXPECT_EQ(TraceScope::current(), nullptr);
  {
    const TraceScope first(outer);
    {
      const TraceScope second(inner);
      EXPECT_EQ(TraceScope::current(), &inner);
    }
    EXPECT_EQ(TraceScope::current(), &outer);
  }
  EXPECT_EQ(TraceScope::current(), nullptr);
}

}  // namespace
}  // namespace lockstep::comm
