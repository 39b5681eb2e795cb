#include <lockstep/simulate/simulation.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A step with 10 ms of data, 100 ms of forward, 200 ms of backward and 20 ms of update. Four
// buckets have 40 MiB.
StepProfile profile_of_a_run() {
  StepProfile profile;
  profile.name = "net";
  profile.strategy = "ddp";
  profile.backend = "shm";
  profile.ranks = 2;
  profile.steps = 10;
  profile.data_seconds = 0.010;
  profile.forward_seconds = 0.100;
  profile.backward_seconds = 0.200;
  profile.optimizer_seconds = 0.020;
  profile.straggler_seconds = 0.002;
  for (int i = 1; i <= 4; ++i) {
    profile.buckets.push_back(
        {.bytes = 10 * kMebibyte, .ready_seconds = 0.05 * i, .parameters = 1});
  }
  return profile;
}

// An all-reduce takes one millisecond per MiB.
Network measured_network(double taken_share) {
  MeasuredCollective all_reduce{.alone = MessageCost({{0, 0}, {kMebibyte, 1e-3}}),
                                .beside = MessageCost({{0, 0}, {kMebibyte, 1e-3}}),
                                .taken = MessageCost({{0, 0}, {kMebibyte, 1e-3 * taken_share}})};
  Network network{.name = "measured"};
  network.between_hosts = MessageCost({{0, 0}, {kMebibyte / 2, 0.5e-3}});
  network.measured = MeasuredNetwork{.ranks = 2, .all_reduce = all_reduce};
  return network;
}

TEST(Simulation, OfOneRankIsItsComputing) {
  const PredictedStep step = predict_step(profile_of_a_run(), named_network("", "1gbit"), 1, {});
  EXPECT_NEAR(step.step_seconds, 0.330, 1e-12);
  EXPECT_DOUBLE_EQ(step.efficiency, 1);
  EXPECT_EQ(step.algorithm, "none");
}

// For one rank, the interval is the spread of the computation alone.
TEST(Simulation, HasTheIntervalOfItsWire) {
  const auto share_of = [](const PredictedStep& step) {
    EXPECT_LT(step.interval.low, step.step_seconds);
    return 1 - step.step_seconds / step.interval.high;
  };
  const StepProfile run = profile_of_a_run();
  Network network = measured_network(0);
  const auto share = [&](Wire wire, int ranks, const SimulationOptions& options = {}) {
    network.wire = wire;
    return share_of(predict_step(run, network, ranks, options));
  };
  constexpr double kClose = 1e-12;
  const double computing = error_share(Wire::kSharedMemory, false);
  EXPECT_NEAR(share(Wire::kNetwork, 1), computing, kClose);
  EXPECT_NEAR(share(Wire::kNetwork, 2, {.communicates = false}), computing, kClose);
  EXPECT_NEAR(share(Wire::kNetwork, 2), error_share(Wire::kNetwork, false), kClose);
  EXPECT_NEAR(share(Wire::kOneHost, 2), error_share(Wire::kOneHost, false), kClose);
  EXPECT_NEAR(share(Wire::kOneHost, 2, {.bytes_factor = 0.005}), error_share(Wire::kOneHost, true),
              kClose)
      << "four buckets of 52 kB";
}

TEST(Simulation, HasAnIntervalWithRoomForTheWaitForASharedProcessor) {
  const StepProfile run = profile_of_a_run();
  Network network = measured_network(0);
  const PredictedStep apart = predict_step(run, network, 2, {});
  network.shares_processor = true;
  const PredictedStep shared = predict_step(run, network, 2, {});
  EXPECT_DOUBLE_EQ(shared.step_seconds, apart.step_seconds);
  EXPECT_DOUBLE_EQ(shared.interval.low, apart.interval.low);
  EXPECT_DOUBLE_EQ(shared.interval.high, apart.interval.high + kSchedulerTickSeconds);
  const PredictedStep silent = predict_step(run, network, 2, {.communicates = false});
  EXPECT_DOUBLE_EQ(silent.interval.high, interval_around(silent.step_seconds, 0.15).high);
}

TEST(Simulation, ExposesTheLastBucket) {
  const PredictedStep step = predict_step(profile_of_a_run(), measured_network(0), 2, {});
  EXPECT_NEAR(step.exposed_seconds, 0.010, 1e-9);
  EXPECT_NEAR(step.taken_seconds, 0, 1e-12);
  EXPECT_NEAR(step.straggler_seconds, 0.002, 1e-12);
  EXPECT_NEAR(step.step_seconds, 0.342, 1e-9);
  EXPECT_NEAR(step.efficiency, 330.0 / 342, 1e-9);
  EXPECT_EQ(step.buckets, 4);
}

TEST(Simulation, TakesFromComputingWhatMovesTheData) {
  const PredictedStep step = predict_step(profile_of_a_run(), measured_network(0.5), 2, {});
  EXPECT_NEAR(step.taken_seconds, 0.015, 1e-9);  // the transfers of three buckets
  EXPECT_NEAR(step.exposed_seconds, 0.010, 1e-9);
  // The reverse removes the transfers from a run that had them.
  const StepProfile run = without_transfers(profile_of_a_run(), measured_network(0.5));
  EXPECT_NEAR(run.backward_seconds, 0.185, 1e-9);
  EXPECT_NEAR(run.buckets[0].ready_seconds, 0.050, 1e-9);
  EXPECT_NEAR(run.buckets[3].ready_seconds, 0.185, 1e-9);
  EXPECT_NEAR(predict_step(run, measured_network(0.5), 2, {}).step_seconds, 0.342, 1e-9);
}

// Backward does not end before its last bucket is ready, however much the transfers seem to take.
TEST(Simulation, TakesNoMoreFromARunThanItsBackwardHas) {
  StepProfile run = profile_of_a_run();
  run.buckets.resize(3);
  for (std::size_t i = 0; i < 3; ++i) {
    run.buckets[i].ready_seconds = 0.001 * static_cast<double>(i + 1);
  }
  run.backward_seconds = 0.004;
  const StepProfile free = without_transfers(run, measured_network(0.5));  // 5 ms a bucket
  for (const ProfileBucket& bucket : free.buckets) EXPECT_DOUBLE_EQ(bucket.ready_seconds, 0.001);
  EXPECT_DOUBLE_EQ(free.backward_seconds, 0.001);
  const StepProfile same = without_transfers(run, named_network("", "1gbit"));
  EXPECT_DOUBLE_EQ(same.backward_seconds, 0.004) << "nothing was measured";
  EXPECT_DOUBLE_EQ(same.buckets[2].ready_seconds, 0.003);
}

TEST(Simulation, OfZeroDividesTheUpdate) {
  SimulationOptions options{.strategy = "zero1"};
  const PredictedStep step = predict_step(profile_of_a_run(), measured_network(0), 2, options);
  // Half of the last bucket's all-reduce comes after backward, and all parameters are gathered.
  EXPECT_NEAR(step.exposed_seconds, 0.005 + 0.020, 1e-9);
  EXPECT_NEAR(step.step_seconds, 0.330 - 0.010 + 0.025 + 0.002, 1e-9);
  options.shares_parameters = true;  // no transfers during backward, and nothing to gather
  options.ranks_per_host = 2;
  EXPECT_NEAR(predict_step(profile_of_a_run(), measured_network(0), 2, options).exposed_seconds,
              0.020, 1e-9);
}

// Gradients travel in bfloat16, but the parameters that are gathered stay in float32.
TEST(Simulation, OfZeroHalvesOnlyTheGradients) {
  SimulationOptions options{.strategy = "zero1", .bytes_factor = 0.5};
  const PredictedStep step = predict_step(profile_of_a_run(), measured_network(0), 2, options);
  EXPECT_NEAR(step.exposed_seconds, 0.0025 + 0.020, 1e-9);
  EXPECT_NEAR(step.step_seconds, 0.330 - 0.010 + 0.0225 + 0.002, 1e-9);
  options.shares_parameters = true;
  options.ranks_per_host = 2;
  EXPECT_NEAR(predict_step(profile_of_a_run(), measured_network(0), 2, options).exposed_seconds,
              0.010, 1e-9);
  const auto answers = what_if(profile_of_a_run(), measured_network(0), 2, {.strategy = "zero1"});
  const auto bf16 = std::ranges::find(answers, "bf16 gradients", &WhatIf::name);
  ASSERT_NE(bf16, answers.end());
  EXPECT_NEAR(bf16->step.exposed_seconds, step.exposed_seconds, 1e-9);
}

// Each collective has times of its own, and moving its data takes part of them from computing.
TEST(Simulation, OfZeroTakesTheTimesOfItsOwnCollectives) {
  const auto of = [](double alone, double beside, double taken) {
    const auto cost = [](double milliseconds) {
      return MessageCost({{0, 0}, {kMebibyte, 1e-3 * milliseconds}});
    };
    return MeasuredCollective{.alone = cost(alone), .beside = cost(beside), .taken = cost(taken)};
  };
  Network network = measured_network(0.5);
  const SimulationOptions options{.strategy = "zero1"};
  // Halves of the all-reduce: 5 ms for the last bucket, 2.5 ms taken by each of the other three.
  PredictedStep step = predict_step(profile_of_a_run(), network, 2, options);
  EXPECT_NEAR(step.exposed_seconds, 0.005 + 0.020, 1e-9);
  EXPECT_NEAR(step.taken_seconds, 0.0075, 1e-9);
  network.measured->reduce_scatter = of(0.7, 0.9, 0.1);
  network.measured->all_gather = of(0.2, 5, 5);  // comes after backward, beside nothing
  step = predict_step(profile_of_a_run(), network, 2, options);
  EXPECT_NEAR(step.exposed_seconds, 0.007 + 4 * 0.002, 1e-9);
  EXPECT_NEAR(step.taken_seconds, 3 * 0.001, 1e-9);
  // Other numbers of ranks were not measured: messages and halves are taken.
  step = predict_step(profile_of_a_run(), network, 4, options);
  const double modelled =
      all_reduce_cost("auto", 10 * kMebibyte, {.ranks = 4}, network).seconds / 2;
  EXPECT_NEAR(step.exposed_seconds, modelled + 4 * modelled, 1e-9);
  EXPECT_NEAR(step.taken_seconds, 0, 1e-12);
}

// A transfer beside computing is not faster than alone, nor than what it takes from computing.
TEST(Simulation, TakesTheSlowestMeasurementOfATransferBesideComputing) {
  StepProfile profile = profile_of_a_run();
  profile.buckets.resize(1);
  profile.buckets[0].ready_seconds = 0.190;  // 10 ms before backward ends
  const auto exposed = [&](double alone, double beside, double taken) {
    const auto cost = [](double milliseconds) {
      return MessageCost({{0, 0}, {kMebibyte, 1e-3 * milliseconds}});
    };
    Network network = measured_network(0);
    network.measured->all_reduce = {
        .alone = cost(alone), .beside = cost(beside), .taken = cost(taken)};
    return predict_step(profile, network, 2, {}).exposed_seconds;
  };
  // After a share of 10 ms / `beside` the rest of the transfer is as fast as alone.
  EXPECT_NEAR(exposed(2, 4, 0), (1 - 10.0 / 40) * 0.020, 1e-9);
  EXPECT_NEAR(exposed(2, 1, 0), 0.010, 1e-9);
  // A transfer that takes all of its 30 ms delays the last 10 ms of computing.
  EXPECT_NEAR(exposed(2, 1, 3), 0, 1e-9);
}

TEST(Simulation, NamesTheAlgorithmOfTheLargestBucket) {
  StepProfile profile = profile_of_a_run();
  const Network network = named_network("", "20,1");
  const auto algorithm_of = [&](double bytes) {
    return all_reduce_cost("auto", bytes, {.ranks = 48}, network).algorithm;
  };
  ASSERT_NE(algorithm_of(4), algorithm_of(1e9));
  profile.buckets[0].bytes = profile.buckets[2].bytes = profile.buckets[3].bytes = 4;
  profile.buckets[1].bytes = 1e9;
  EXPECT_EQ(predict_step(profile, network, 48, {}).algorithm, algorithm_of(1e9));
  EXPECT_EQ(predict_step(profile, network, 48, {.algorithm = "tree"}).algorithm, "tree");
}

TEST(Simulation, KnowsHowManyRanksShareAHost) {
  const Network network = named_network("", "20,1");
  StepProfile profile = profile_of_a_run();
  profile.buckets.resize(1);
  profile.buckets[0].ready_seconds = profile.backward_seconds;
  for (const int ranks_per_host : {1, 4, 8}) {
    const SimulationOptions options{.algorithm = "ring", .ranks_per_host = ranks_per_host};
    EXPECT_NEAR(
        predict_step(profile, network, 8, options).exposed_seconds,
        ring_seconds(10 * kMebibyte, {.ranks = 8, .ranks_per_host = ranks_per_host}, network),
        1e-12)
        << ranks_per_host;
  }
}

// Several buckets below 64 KiB, not a single one.
TEST(Simulation, HasTheIntervalOfSmallBuckets) {
  StepProfile profile = profile_of_a_run();
  Network network = measured_network(0);
  network.wire = Wire::kOneHost;
  const auto is_small = [&](double bytes, std::size_t buckets, double factor = 1) {
    profile.buckets.resize(buckets);
    for (ProfileBucket& bucket : profile.buckets) bucket.bytes = bytes;
    const PredictedStep step = predict_step(profile, network, 2, {.bytes_factor = factor});
    const double share = 1 - step.step_seconds / step.interval.high;
    return share > (error_share(Wire::kOneHost, true) + error_share(Wire::kOneHost, false)) / 2;
  };
  EXPECT_TRUE(is_small(65535, 4));
  EXPECT_FALSE(is_small(65536, 4));
  EXPECT_TRUE(is_small(65537, 4, 0.5));
  EXPECT_TRUE(is_small(1000, 2));
  EXPECT_FALSE(is_small(1000, 1));
}

// How long two ranks wait for the slower one was measured.
TEST(Simulation, ScalesTheWaitForTheSlowestRank) {
  StepProfile profile = profile_of_a_run();
  const auto wait = [&](int ranks) {
    return predict_step(profile, measured_network(0), ranks, {}).straggler_seconds;
  };
  const double of_two = expected_largest_deviation(2);
  EXPECT_DOUBLE_EQ(wait(1), 0);
  EXPECT_NEAR(wait(2), 0.002, 1e-12);
  EXPECT_NEAR(wait(8), 0.002 * expected_largest_deviation(8) / of_two, 1e-12);
  EXPECT_GT(wait(8), 0.004);
  profile.ranks = 8;
  EXPECT_NEAR(wait(8), 0.002, 1e-12);
  profile.ranks = 1;  // nothing was waited for
  EXPECT_DOUBLE_EQ(wait(8), 0);
  const SimulationOptions silent{.communicates = false};
  profile.ranks = 2;
  EXPECT_NEAR(predict_step(profile, measured_network(0), 2, silent).straggler_seconds, 0.002,
              1e-12);
}

TEST(Simulation, HasAnIntervalWithoutASharedProcessorForOneRank) {
  Network network = measured_network(0);
  network.shares_processor = true;
  const PredictedStep step = predict_step(profile_of_a_run(), network, 1, {});
  const double share = error_share(Wire::kSharedMemory, false);
  EXPECT_DOUBLE_EQ(step.interval.high, interval_around(step.step_seconds, share).high);
}

// Each host lacks the other hosts' gradients of its own share, and the parameters of their shares.
// Only the gradients can travel during backward, and not if ranks share the parameters.
TEST(Simulation, OfZeroIsNoFasterThanTheLinkOfAHost) {
  const StepProfile profile = profile_of_a_run();
  const Network network = named_network("", "1gbit");
  constexpr double kBytesPerSecond = 0.94 * 1e9 / 8;
  for (const std::string& algorithm : all_reduce_names()) {
    for (const int ranks_per_host : {1, 2, 3, 8}) {
      for (const int ranks : {1, 2, 3, 4, 6, 8, 16, 24, 64}) {
        for (const bool shares : {false, true}) {
          const int hosts = RankPlaces{.ranks = ranks, .ranks_per_host = ranks_per_host}.hosts();
          const double lacking = profile.bytes() * (hosts - 1) / hosts / kBytesPerSecond;
          const PredictedStep step = predict_step(profile, network, ranks,
                                                  {.strategy = "zero1",
                                                   .algorithm = algorithm,
                                                   .ranks_per_host = ranks_per_host,
                                                   .shares_parameters = shares});
          EXPECT_GE(step.exposed_seconds, (shares ? 2 : 1) * lacking * (1 - 1e-9))
              << algorithm << ", " << ranks << " ranks, " << ranks_per_host << " a host"
              << (shares ? ", shared" : "");
        }
      }
    }
  }
}

TEST(Simulation, AnswersWhatIf) {
  const StepProfile profile = profile_of_a_run();
  const Network network = measured_network(0);
  const std::vector<WhatIf> answers = what_if(profile, network, 2, {});
  const auto answer = [&](const std::string& name) {
    for (const WhatIf& each : answers) {
      if (each.name == name) return each.step;
    }
    ADD_FAILURE() << name;
    return PredictedStep{};
  };
  const double as_it_is = answer("as it is").step_seconds;
  EXPECT_NEAR(as_it_is, 0.342, 1e-9);
  EXPECT_NEAR(answer("without communication").step_seconds, 0.332, 1e-9);
  EXPECT_NEAR(answer("ranks equally fast").step_seconds, 0.340, 1e-9);
  EXPECT_NEAR(answer("without waiting for data").step_seconds, 0.332, 1e-9);
  EXPECT_NEAR(answer("one bucket behind backward").exposed_seconds, 0.040, 1e-9);
  EXPECT_NEAR(answer("bf16 gradients").exposed_seconds, 0.005, 1e-9);
  EXPECT_NEAR(answer("a wire of half the speed").exposed_seconds, 0.020, 1e-9);
  EXPECT_NEAR(answer("a wire of twice the speed").exposed_seconds, 0.005, 1e-9);
  EXPECT_EQ(answer("buckets of 100 MiB").buckets,
            2);  // the first bucket has at most 1 MiB, and therefore one parameter
  EXPECT_EQ(answer("twice as many ranks").ranks, 4);
  EXPECT_EQ(answer("half as many ranks").ranks, 1);
  EXPECT_LT(answer("half as many ranks").step_seconds, as_it_is);
  EXPECT_EQ(answer("buckets of 1 MiB").buckets, 4);
  EXPECT_EQ(answer("buckets of 5 MiB").buckets, 4);
  EXPECT_EQ(answer("buckets of 25 MiB").buckets, 2);
  EXPECT_EQ(answer("one bucket behind backward").buckets, 1);
  EXPECT_EQ(answers.front().name, "as it is");
  EXPECT_EQ(answers.size(), 14U);
  EXPECT_EQ(what_if(profile, network, 1, {}).size(), 13U) << "no half of one rank";
}

// Changes come on top of the options.
TEST(Simulation, AnswersWhatIfOfOtherOptions) {
  const SimulationOptions options{.bytes_factor = 0.5, .speed = 2};
  const std::vector<WhatIf> answers = what_if(profile_of_a_run(), measured_network(0), 2, options);
  const auto exposed = [&](const char* name) {
    const auto found = std::ranges::find(answers, name, &WhatIf::name);
    return found == answers.end() ? -1 : found->step.exposed_seconds;
  };
  EXPECT_NEAR(exposed("as it is"), 0.0025, 1e-9);
  EXPECT_NEAR(exposed("bf16 gradients"), 0.00125, 1e-9);
  EXPECT_NEAR(exposed("a wire of half the speed"), 0.005, 1e-9);
  EXPECT_NEAR(exposed("a wire of twice the speed"), 0.00125, 1e-9);
}

// The table of answers goes beyond the measurements even if the step as it is does not.
TEST(Simulation, SaysWhichAnswersAreExtrapolated) {
  Network network = measured_network(0);
  network.measured->all_reduce.alone = MessageCost({{kMebibyte, 1e-3}, {40 * kMebibyte, 40e-3}});
  network.measured->backend = "gloo";
  std::vector<std::string> names;
  for (const WhatIf& answer : what_if(profile_of_a_run(), network, 2, {})) {
    if (!answer.step.extrapolations.empty()) names.push_back(answer.name);
  }
  EXPECT_THAT(names, ElementsAre("a wire of half the speed", "a wire of twice the speed",
                                 "twice as many ranks"));
  network.measured->all_reduce.alone = MessageCost({{kMebibyte, 1e-3}, {16 * kMebibyte, 16e-3}});
  EXPECT_THAT(predict_step(profile_of_a_run(), network, 2, {}).extrapolations, IsEmpty());
  EXPECT_THAT(predict_step(profile_of_a_run(), network, 2, {.bytes_factor = 2}).extrapolations,
              ElementsAre(HasSubstr("buckets on 2 ranks of 21 MB are beyond the measured")));
}

// The wire of a measurement without small messages still has a speed.
TEST(Simulation, ChangesTheSpeedOfAWireWithoutSmallMessages) {
  Network network = measured_network(0);
  network.measured->all_reduce.alone =
      MessageCost({{10 * kMebibyte, 10e-3}, {20 * kMebibyte, 20e-3}});
  const auto exposed = [&](double speed) {
    return predict_step(profile_of_a_run(), network, 2, {.speed = speed}).exposed_seconds;
  };
  EXPECT_NEAR(exposed(1), 0.010, 1e-9);
  EXPECT_NEAR(exposed(0.5), 0.020, 1e-9);
  EXPECT_NEAR(exposed(2), 0.005, 1e-9);
}

TEST(Simulation, IsSlowerOnMoreRanksAndSlowerWires) {
  const StepProfile profile = profile_of_a_run();
  double before = 0;
  for (int ranks = 1; ranks <= 4096; ranks *= 2) {
    const double seconds =
        predict_step(profile, named_network("", "10gbit"), ranks, {}).step_seconds;
    EXPECT_GE(seconds, before - 1e-9) << ranks;
    before = seconds;
  }
  before = 1e9;
  for (const char* name : {"1gbit", "10gbit", "25gbit", "100gbit"}) {
    const double seconds = predict_step(profile, named_network("", name), 16, {}).step_seconds;
    EXPECT_LE(seconds, before) << name;
    before = seconds;
  }
}

TEST(Simulation, LetsMoreRanksWaitLonger) {
  EXPECT_DOUBLE_EQ(expected_largest_deviation(1), 0);
  // From tables of normal order statistics: 0.564, 1.539, 2.508.
  EXPECT_NEAR(expected_largest_deviation(2), 0.564, 0.03);
  EXPECT_NEAR(expected_largest_deviation(10), 1.539, 0.01);
  EXPECT_NEAR(expected_largest_deviation(100), 2.508, 0.01);
}

TEST(Simulation, RefusesOptionsThatCannotBe) {
  const auto refusal = [](const SimulationOptions& options) {
    return testing_support::message_of<ConfigError>([&] { validate(options, "simulate"); });
  };
  EXPECT_EQ(refusal({}), "nothing was thrown");
  EXPECT_THAT(refusal({.strategy = "pipeline"}),
              HasSubstr("simulate: strategy must be one of ddp, zero1"));
  EXPECT_THAT(refusal({.algorithm = "star"}),
              HasSubstr("simulate: algorithm must be one of auto, ring, "));
  EXPECT_THAT(refusal({.ranks_per_host = 0}),
              HasSubstr("simulate: ranks_per_host must be from 1 to 1024, got 0"));
  EXPECT_THAT(refusal({.ranks_per_host = 1025}), HasSubstr("ranks_per_host must be from 1 to"));
  EXPECT_EQ(refusal({.ranks_per_host = 1024}), "nothing was thrown");
  EXPECT_THAT(refusal({.bytes_factor = 0}), HasSubstr("simulate: bytes_factor must be"));
  EXPECT_THAT(refusal({.speed = -1}), HasSubstr("simulate: speed must be"));
  EXPECT_THAT(refusal({.buckets = BucketSizes{.cap_bytes = 0}}),
              HasSubstr("simulate: buckets.cap_bytes must be"));
  EXPECT_THAT(refusal({.buckets = BucketSizes{.first_cap_bytes = 0}}),
              HasSubstr("simulate: buckets.first_cap_bytes must be"));
  EXPECT_EQ(refusal({.buckets = BucketSizes{}}), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::simulate
