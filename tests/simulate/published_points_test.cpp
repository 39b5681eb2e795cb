// Published measurements of scaling, predicted with one set of network parameters.
#include <gtest/gtest.h>

#include <lockstep/simulate/simulation.h>

namespace lockstep::simulate {
namespace {

StepProfile published_profile(const std::string& name) {
  return read_step_profile(std::string(LOCKSTEP_PROFILES) + "/" + name + ".json");
}

struct PublishedPoint {
  const char* profile;
  const char* network;  // 25 or 50 Gbit/s, with the same latency and share of the line rate
  int ranks;
  int ranks_per_host;
  const char* algorithm;
  double efficiency;
};

// Fitted to these four points: 10 us latency, 90% of the line rate, and (in the profiles) step
// times that vary by 1% between ranks.
constexpr const char* k25Gbit = "10,2.8125";
constexpr const char* k50Gbit = "10,5.625";
constexpr PublishedPoint kPoints[] = {
    // Sergeev and Del Balso 2018 (arXiv 1802.05799): a ring over 128 and over 32 hosts with 4 GPUs
    // each.
    {"vgg16_p100", k25Gbit, 512, 4, "ring", 0.68},
    {"vgg16_p100", k25Gbit, 128, 4, "ring", 0.79},
    {"resnet50_p100", k25Gbit, 512, 4, "ring", 0.90},
    // Goyal et al. 2017 (arXiv 1706.02677): 32 hosts with 8 GPUs each.
    {"resnet50_p100_batch32", k50Gbit, 256, 8, "hierarchical", 0.90},
};

TEST(PublishedPoints, AreNear) {
  for (const PublishedPoint& point : kPoints) {
    const SimulationOptions options{.algorithm = point.algorithm,
                                    .ranks_per_host = point.ranks_per_host,
                                    .buckets = bucket_sizes(64)};  // Horovod's fusion buffer size
    const PredictedStep step =
        predict_step(published_profile(point.profile), named_network("--network", point.network),
                     point.ranks, options);
    EXPECT_NEAR(step.efficiency, point.efficiency, 0.04) << point.profile << " on " << point.ranks;
  }
}

TEST(PublishedPoints, HaveTheParametersOfTheirNetworks) {
  EXPECT_NEAR(published_profile("resnet50_p100").bytes() / 4, 25.557e6, 0.001e6);
  EXPECT_NEAR(published_profile("vgg16_p100").bytes() / 4, 138.358e6, 0.001e6);
  // fc6 has 103 million parameters. Its gradient is among the first three.
  EXPECT_NEAR(published_profile("vgg16_p100").buckets[2].bytes / 4, 102.764e6, 0.001e6);
  EXPECT_NEAR(published_profile("vgg16_p100").compute_seconds(), 64.0 / 154, 1e-9);
  EXPECT_NEAR(published_profile("vgg16_p100").straggler_seconds / expected_largest_deviation(2),
              0.01 * 64 / 154, 1e-9);
}

}  // namespace
}  // namespace lockstep::simulate
