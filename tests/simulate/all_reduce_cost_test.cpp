#include <lockstep/simulate/all_reduce_cost.h>

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep::simulate {
namespace {

constexpr double kAlpha = 20e-6;
constexpr double kBandwidth = 1e9;
constexpr double kGamma = 0.1e-9;

Network plain_network(double gamma = 0) {
  return {.name = "test",
          .between_hosts = MessageCost::of(kAlpha, kBandwidth),
          .within_host = MessageCost::of(1e-6, 50e9),
          .gamma_seconds_per_byte = gamma};
}

TEST(AllReduceCost, OfARingIsItsClosedForm) {
  for (const int ranks : {2, 3, 8, 100}) {
    const double bytes = 1e7;
    const double expected = 2 * (ranks - 1) * (kAlpha + bytes / ranks / kBandwidth) +
                            kGamma * bytes * (ranks - 1) / ranks;
    EXPECT_NEAR(ring_seconds(bytes, {.ranks = ranks}, plain_network(kGamma)), expected, 1e-12)
        << ranks;
  }
}

TEST(AllReduceCost, OfHalvingAndDoublingIsItsClosedForm) {
  for (const int steps : {1, 2, 3, 10}) {
    const int ranks = 1 << steps;
    const double bytes = 1e7;
    const double expected =
        2 * steps * kAlpha + (2 / kBandwidth + kGamma) * bytes * (ranks - 1) / ranks;
    EXPECT_NEAR(halving_doubling_seconds(bytes, {.ranks = ranks}, plain_network(kGamma)), expected,
                1e-12)
        << ranks;
  }
}

TEST(AllReduceCost, OfATreeIsLogarithmicInTheRanks) {
  const double small = 4;
  const double few = tree_seconds(small, {.ranks = 16}, plain_network());
  const double many = tree_seconds(small, {.ranks = 256}, plain_network());
  EXPECT_NEAR(many / few, 2, 1e-6);
  // A large tensor is sent in many pieces. The time depends on how much each rank receives and
  // sends.
  const double large = 1e9;
  EXPECT_NEAR(tree_seconds(large, {.ranks = 16}, plain_network()), 2 * large / kBandwidth,
              0.1 * 2 * large / kBandwidth);
}

TEST(AllReduceCost, OfHostsIsThreePhases) {
  const double bytes = 1e8;
  const Network network = plain_network();
  const RankPlaces places{.ranks = 32, .ranks_per_host = 8};
  const double inside = 2 * 7 * (1e-6 + bytes / 8 / 50e9);
  EXPECT_NEAR(hierarchical_seconds(bytes, places, network),
              inside + halving_doubling_seconds(bytes, {.ranks = 4}, network), 1e-12);
  EXPECT_NEAR(hierarchical_seconds(bytes, {.ranks = 8, .ranks_per_host = 8}, network), inside,
              1e-12);
}

// The lower bound of any algorithm: each rank must send and receive 2 (p - 1) / p of the tensor.
TEST(AllReduceCost, IsNotBelowTheLowerBound) {
  for (const int ranks : {2, 3, 7, 64, 1000}) {
    for (const double bytes : {1.0, 1e4, 1e6, 1e9}) {
      const double bound = 2.0 * (ranks - 1) / ranks * bytes / kBandwidth;
      for (const std::string& name : all_reduce_names()) {
        EXPECT_GE(all_reduce_cost(name, bytes, {.ranks = ranks}, plain_network()).seconds,
                  bound * (1 - 1e-9))
            << name << ' ' << ranks << ' ' << bytes;
      }
    }
  }
}

TEST(AllReduceCost, GrowsWithTheBytes) {
  for (const std::string& name : all_reduce_names()) {
    for (const RankPlaces places :
         {RankPlaces{.ranks = 6}, RankPlaces{.ranks = 64, .ranks_per_host = 8}}) {
      double before = 0;
      for (double bytes = 1; bytes < 1e10; bytes *= 3) {
        const double seconds = all_reduce_cost(name, bytes, places, plain_network(kGamma)).seconds;
        EXPECT_GE(seconds, before) << name << ' ' << bytes;
        before = seconds;
      }
    }
  }
}

TEST(AllReduceCost, IsNothingForOneRank) {
  for (const std::string& name : all_reduce_names()) {
    const AllReduceCost cost = all_reduce_cost(name, 1e9, {.ranks = 1}, plain_network());
    EXPECT_DOUBLE_EQ(cost.seconds, 0) << name;
    EXPECT_EQ(cost.algorithm, "none");
  }
  EXPECT_DOUBLE_EQ(tree_seconds(1, {.ranks = 1}, plain_network()), 0);
}

TEST(AllReduceCost, TakesTheCheapest) {
  const RankPlaces places{.ranks = 256};
  const AllReduceCost small = all_reduce_cost("auto", 4, places, plain_network());
  EXPECT_EQ(small.algorithm, "halving-doubling");
  for (const double bytes : {4.0, 1e5, 1e9}) {
    const double best = all_reduce_cost("auto", bytes, places, plain_network()).seconds;
    for (const std::string& name : all_reduce_names()) {
      EXPECT_LE(best, all_reduce_cost(name, bytes, places, plain_network()).seconds) << name;
    }
  }
  const RankPlaces of_hosts{.ranks = 256, .ranks_per_host = 8};
  EXPECT_LT(hierarchical_seconds(1e6, of_hosts, plain_network()),
            ring_seconds(1e6, of_hosts, plain_network()));
}

TEST(AllReduceCost, IsWhatWasMeasuredOnAsManyRanks) {
  Network network = plain_network();
  network.measured =
      MeasuredNetwork{.ranks = 2, .all_reduce = {.alone = MessageCost({{100, 7e-6}})}};
  EXPECT_EQ(all_reduce_cost("auto", 100, {.ranks = 2}, network).algorithm, "measured");
  EXPECT_DOUBLE_EQ(all_reduce_cost("auto", 100, {.ranks = 2}, network).seconds, 7e-6);
  EXPECT_NE(all_reduce_cost("auto", 100, {.ranks = 4}, network).algorithm, "measured");
  EXPECT_EQ(all_reduce_cost("ring", 100, {.ranks = 2}, network).algorithm, "ring");
}

// Each host's link carries one flow of a ring, but eight flows between distant neighbours.
TEST(AllReduceCost, SharesTheLinkOfAHost) {
  const RankPlaces places{.ranks = 64, .ranks_per_host = 8};
  const double bytes = 1e9;
  EXPECT_NEAR(ring_seconds(bytes, places, plain_network()),
              ring_seconds(bytes, {.ranks = 64}, plain_network()), 1e-9);
  EXPECT_LT(halving_doubling_seconds(bytes, places, plain_network()),
            halving_doubling_seconds(bytes, {.ranks = 64}, plain_network()) * 1.01);
}

}  // namespace
}  // namespace lockstep::simulate
