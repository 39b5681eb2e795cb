#include <lockstep/simulate/all_reduce_cost.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>

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

// Links within a host that are slower than those between hosts.
Network slow_insides() {
  Network network = plain_network(kGamma);
  std::swap(network.between_hosts, network.within_host);
  return network;
}

TEST(AllReduceCost, OfARingIsThatOfItsSlowestLink) {
  const double bytes = 6e6;
  const double added = kGamma * bytes * 5 / 6;
  const double slow = 10 * (kAlpha + 1e6 / kBandwidth) + added;
  const double fast = 10 * (1e-6 + 1e6 / 50e9) + added;
  const RankPlaces one_a_host{.ranks = 6};
  const RankPlaces two_hosts{.ranks = 6, .ranks_per_host = 3};
  const RankPlaces one_host{.ranks = 6, .ranks_per_host = 6};
  constexpr double kClose = 1e-12;
  EXPECT_NEAR(ring_seconds(bytes, one_a_host, slow_insides()), fast, kClose);
  EXPECT_NEAR(ring_seconds(bytes, two_hosts, slow_insides()), slow, kClose);
  EXPECT_NEAR(ring_seconds(bytes, one_host, slow_insides()), slow, kClose);
  EXPECT_NEAR(ring_seconds(bytes, one_a_host, plain_network(kGamma)), slow, kClose);
  EXPECT_NEAR(ring_seconds(bytes, two_hosts, plain_network(kGamma)), slow, kClose);
  EXPECT_NEAR(ring_seconds(bytes, one_host, plain_network(kGamma)), fast, kClose);
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

// A small tensor is sent in one piece, of which each tree takes half.
TEST(AllReduceCost, OfATreeOfChainsIsItsClosedForm) {
  const double piece = 2;
  const double added = 2 * kGamma * piece;
  const double between = 2 * (kAlpha + piece / kBandwidth) + added;
  const double within = 2 * (1e-6 + piece / 50e9) + added;
  const auto seconds = [&](const RankPlaces& places, const Network& network) {
    return tree_seconds(2 * piece, places, network);
  };
  constexpr double kClose = 1e-13;
  // Trees over 5 hosts have 3 levels; the 3 ranks of a host make a chain of 2 messages.
  EXPECT_NEAR(seconds({.ranks = 13, .ranks_per_host = 3}, plain_network(kGamma)), 2 * 5 * between,
              kClose);
  EXPECT_NEAR(seconds({.ranks = 13, .ranks_per_host = 3}, slow_insides()), 2 * 5 * between, kClose);
  EXPECT_NEAR(seconds({.ranks = 5}, slow_insides()), 2 * 3 * within, kClose);
  EXPECT_NEAR(seconds({.ranks = 4}, plain_network(kGamma)), 2 * 2 * between, kClose);
  EXPECT_NEAR(seconds({.ranks = 4, .ranks_per_host = 8}, plain_network(kGamma)), 2 * 3 * within,
              kClose);
  // Without latency, the most pieces are the best.
  EXPECT_NEAR(tree_seconds(1e9, {.ranks = 16}, named_network("--network", "0,1")),
              2.0 * (4 + 4095) / 4096, 1e-9);
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

// A ring is faster between three hosts, of which one would be folded into another. The ranks of a
// host add up their parts of the tensor before.
TEST(AllReduceCost, OfHostsAddsWithinAndBetweenThem) {
  const double bytes = 1.2e8;
  const double inside = 2 * 3 * (1e-6 + bytes / 4 / 50e9) + kGamma * bytes * 3 / 4;
  const double ring = 4 * (kAlpha + bytes / 3 / kBandwidth) + kGamma * bytes * 2 / 3;
  EXPECT_NEAR(
      hierarchical_seconds(bytes, {.ranks = 12, .ranks_per_host = 4}, plain_network(kGamma)),
      inside + ring, 1e-11);
  EXPECT_NEAR(hierarchical_seconds(bytes, {.ranks = 3}, plain_network(kGamma)), ring, 1e-11);
  EXPECT_NEAR(hierarchical_seconds(bytes, {.ranks = 3, .ranks_per_host = 8}, plain_network(kGamma)),
              4 * (1e-6 + bytes / 3 / 50e9) + kGamma * bytes * 2 / 3, 1e-11);
}

// A folded tensor is added whole, before the rest is added by halves.
TEST(AllReduceCost, OfHalvingAndDoublingAddsWhatIsFolded) {
  const double bytes = 1e7;
  const auto added = [&](int ranks) {
    return halving_doubling_seconds(bytes, {.ranks = ranks}, plain_network(kGamma)) -
           halving_doubling_seconds(bytes, {.ranks = ranks}, plain_network());
  };
  EXPECT_NEAR(added(4), kGamma * bytes * 0.75, 1e-12);
  EXPECT_NEAR(added(6), kGamma * bytes * (1 + 0.75), 1e-12);
  EXPECT_NEAR(added(7), kGamma * bytes * (1 + 0.75), 1e-12);
}

// The messages of halving and doubling one by one, as MPICH sends them: of the surplus ranks, those
// with an even number are folded into their neighbours.
double played_halving_doubling(double bytes, const RankPlaces& places, const Network& network) {
  int remaining = 1;
  while (2 * remaining <= places.ranks) remaining *= 2;
  const int surplus = places.ranks - remaining;
  const auto round = [&](const std::vector<std::pair<int, int>>& pairs, double message) {
    std::map<int, int> leaving;  // by host
    double seconds = 0;
    for (const auto& [from, to] : pairs) {
      const int host = from / places.ranks_per_host;
      if (host == to / places.ranks_per_host) {
        seconds = std::max(seconds, network.within_host.seconds(message));
      } else {
        ++leaving[host];
      }
    }
    for (const auto& [host, flows] : leaving) {
      seconds = std::max(seconds, network.between_hosts.seconds(flows * message));
    }
    return seconds;
  };
  std::vector<std::pair<int, int>> folded;
  std::vector<int> taking_part;
  for (int rank = 0; rank < places.ranks; ++rank) {
    if (rank < 2 * surplus && rank % 2 == 0) {
      folded.emplace_back(rank, rank + 1);
    } else {
      taking_part.push_back(rank);
    }
  }
  double seconds = 2 * round(folded, bytes);
  double message = bytes;
  for (int distance = 1; distance < remaining; distance *= 2) {
    message /= 2;
    std::vector<std::pair<int, int>> pairs;
    for (int i = 0; i < remaining; ++i) {
      pairs.emplace_back(taking_part[i], taking_part[i ^ distance]);
    }
    seconds += 2 * round(pairs, message);
  }
  return seconds;
}

TEST(AllReduceCost, OfHalvingAndDoublingIsThatOfItsMessages) {
  for (int ranks = 2; ranks <= 70; ++ranks) {
    for (const int ranks_per_host : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 70}) {
      const RankPlaces places{.ranks = ranks, .ranks_per_host = ranks_per_host};
      for (const double bytes : {4.0, 1e8}) {
        const double expected = played_halving_doubling(bytes, places, plain_network());
        EXPECT_NEAR(halving_doubling_seconds(bytes, places, plain_network()), expected,
                    1e-9 * expected)
            << ranks << " ranks, " << ranks_per_host << " a host, " << bytes << " bytes";
      }
    }
  }
}

TEST(AllReduceCost, OfHalvingAndDoublingIsQuickForManyRanks) {
  for (const int ranks_per_host : {1, 2, 3, 1000}) {
    const RankPlaces places{.ranks = (1 << 20) - 1, .ranks_per_host = ranks_per_host};
    EXPECT_GT(halving_doubling_seconds(1e8, places, plain_network()), 0.2);
  }
}

// A fast wire between hosts and slow links within them, and measured networks, too.
std::vector<Network> networks_with_bounds() {
  std::vector<Network> networks;
  for (const char* name : {"1gbit", "10gbit", "25gbit", "100gbit", "nvlink", "20,2.5", "0,1000"}) {
    networks.push_back(named_network("--network", name));
  }
  Network slow_inside = plain_network();
  slow_inside.name = "slow links within hosts";
  std::swap(slow_inside.between_hosts, slow_inside.within_host);
  networks.push_back(slow_inside);
  Network measured = plain_network(kGamma);
  measured.name = "measured";
  measured.between_hosts = MessageCost({{1e5, 1e-4 + 30e-6}, {1e6, 1e-3 + 30e-6}});
  measured.within_host = measured.between_hosts;
  networks.push_back(measured);
  networks.push_back(at_speed(measured, 0.5));
  return networks;
}

// The rate of long messages.
double bytes_per_second(const MessageCost& cost) {
  return 1e12 / (cost.seconds(2e12) - cost.seconds(1e12));
}

// Each rank must receive 2 (p - 1) / p of the tensor, over its faster link, and each of H hosts 2
// (H - 1) / H of it, over its only one.
TEST(AllReduceCost, IsNotBelowTheBandwidthsOfItsLinks) {
  for (const Network& network : networks_with_bounds()) {
    const double outside = bytes_per_second(network.between_hosts);
    const double inside = bytes_per_second(network.within_host);
    for (const int ranks : {2, 3, 4, 6, 8, 9, 12, 24, 48, 100, 1000}) {
      for (const int ranks_per_host : {1, 2, 3, 4, 6, 8, 12, 50, 1000}) {
        const RankPlaces places{.ranks = ranks, .ranks_per_host = ranks_per_host};
        const int hosts = places.hosts();
        const double fastest = ranks_per_host == 1 ? outside
                               : hosts == 1        ? inside
                                                   : std::max(outside, inside);
        for (const double bytes : {4.0, 1e4, 1e6, 100 * 1048576.0, 1e10}) {
          const double of_ranks = 2.0 * (ranks - 1) / ranks * bytes / fastest;
          const double of_hosts = 2.0 * (hosts - 1) / hosts * bytes / outside;
          for (const std::string& name : all_reduce_names()) {
            EXPECT_GE(all_reduce_cost(name, bytes, places, network).seconds,
                      std::max(of_ranks, of_hosts) * (1 - 1e-9))
                << name << " on " << network.name << ", " << ranks << " ranks, " << ranks_per_host
                << " a host, " << bytes << " bytes";
          }
        }
      }
    }
  }
  // 100 MiB over 1 Gbit/s between two hosts of three ranks.
  const double seconds = all_reduce_cost("auto", 100 * 1048576.0, {.ranks = 6, .ranks_per_host = 3},
                                         named_network("--network", "1gbit"))
                             .seconds;
  EXPECT_GE(seconds, 0.892);
  EXPECT_LE(seconds, 1.5);
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

TEST(AllReduceCost, HasNames) {
  const std::vector<std::string> names{"auto", "ring", "halving-doubling", "tree", "hierarchical"};
  EXPECT_EQ(all_reduce_names(), names);
  for (std::size_t i = 1; i < names.size(); ++i) {
    EXPECT_EQ(all_reduce_cost(names[i], 1e6, {.ranks = 4}, plain_network()).algorithm, names[i]);
  }
  EXPECT_THROW(all_reduce_cost("star", 1e6, {.ranks = 4}, plain_network()), Error);
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
