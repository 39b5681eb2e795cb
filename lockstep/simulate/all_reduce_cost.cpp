#include <lockstep/simulate/all_reduce_cost.h>

#include <algorithm>
#include <bit>
#include <limits>

#include <lockstep/core/error.h>

namespace lockstep::simulate {
namespace {

double between(double bytes, const Network& network) {
  return network.between_hosts.seconds(bytes);
}
double within(double bytes, const Network& network) { return network.within_host.seconds(bytes); }

// A ring or a chain of ranks is as fast as its slowest link.
double slower_link(double bytes, const RankPlaces& places, const Network& network) {
  const double crossing = places.hosts() > 1 ? between(bytes, network) : 0;
  const double inside = places.ranks_per_host > 1 ? within(bytes, network) : 0;
  return std::max(crossing, inside);
}

int floor_log2(int value) { return std::bit_width(static_cast<unsigned>(value)) - 1; }
int ceil_log2(int value) { return std::bit_width(static_cast<unsigned>(value - 1)); }

double adding(double bytes, int ranks, const Network& network) {
  return network.gamma_seconds_per_byte * bytes * (ranks - 1) / ranks;
}

struct NamedAlgorithm {
  const char* name;
  double (*seconds)(double, const RankPlaces&, const Network&);
};

constexpr NamedAlgorithm kAlgorithms[] = {{"ring", ring_seconds},
                                          {"halving-doubling", halving_doubling_seconds},
                                          {"tree", tree_seconds},
                                          {"hierarchical", hierarchical_seconds}};

}  // namespace

double ring_seconds(double bytes, const RankPlaces& places, const Network& network) {
  const int p = places.ranks;
  if (p < 2) return 0;
  return 2 * (p - 1) * slower_link(bytes / p, places, network) + adding(bytes, p, network);
}

double halving_doubling_seconds(double bytes, const RankPlaces& places, const Network& network) {
  const int p = places.ranks;
  if (p < 2) return 0;
  const int steps = floor_log2(p);
  const int paired = 1 << steps;
  double seconds = 0;
  double message = bytes;
  for (int step = 0; step < steps; ++step) {
    message /= 2;
    const bool crosses = (1 << step) >= places.ranks_per_host;
    seconds += 2 * (crosses ? between(message * std::min(places.ranks_per_host, p), network)
                            : within(message, network));
  }
  seconds += adding(bytes, paired, network);
  if (paired == p) return seconds;
  const double whole = places.hosts() > 1 ? between(bytes, network) : within(bytes, network);
  return seconds + 2 * whole + network.gamma_seconds_per_byte * bytes;
}

double tree_seconds(double bytes, const RankPlaces& places, const Network& network) {
  if (places.ranks < 2) return 0;
  const int hosts = places.hosts();
  const int chain = std::min(places.ranks_per_host, places.ranks) - 1;
  const int depth = ceil_log2(hosts) + chain;
  double best = std::numeric_limits<double>::infinity();
  constexpr int kMostPieces = 1 << 12;
  for (int pieces = 1; pieces <= kMostPieces; pieces *= 2) {
    const double piece = bytes / (2.0 * pieces);
    const double crossing = hosts > 1 ? 2 * between(piece, network) : 0;
    const double inside = chain > 0 ? 2 * within(piece, network) : 0;
    const double round = std::max(crossing, inside) + 2 * network.gamma_seconds_per_byte * piece;
    best = std::min(best, 2 * (depth + pieces - 1) * round);
  }
  return best;
}

double hierarchical_seconds(double bytes, const RankPlaces& places, const Network& network) {
  const int local = std::min(places.ranks_per_host, places.ranks);
  const int hosts = places.hosts();
  double seconds = 0;
  if (local > 1) {
    seconds = 2 * (local - 1) * within(bytes / local, network) + adding(bytes, local, network);
  }
  if (hosts < 2) return seconds;
  const RankPlaces leaders{.ranks = hosts, .ranks_per_host = 1};
  return seconds + std::min(ring_seconds(bytes, leaders, network),
                            halving_doubling_seconds(bytes, leaders, network));
}

const std::vector<std::string>& all_reduce_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"auto"};
    for (const NamedAlgorithm& each : kAlgorithms) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

AllReduceCost all_reduce_cost(const std::string& algorithm, double bytes, const RankPlaces& places,
                              const Network& network) {
  if (places.ranks < 2) return {.algorithm = "none", .seconds = 0};
  if (algorithm == "auto" && network.measured && network.measured->ranks == places.ranks) {
    return {.algorithm = "measured", .seconds = network.measured->all_reduce.alone.seconds(bytes)};
  }
  AllReduceCost best{.algorithm = "", .seconds = std::numeric_limits<double>::infinity()};
  for (const NamedAlgorithm& each : kAlgorithms) {
    if (algorithm != "auto" && algorithm != each.name) continue;
    const double seconds = each.seconds(bytes, places, network);
    if (seconds < best.seconds) best = {.algorithm = each.name, .seconds = seconds};
  }
  LOCKSTEP_CHECK(!best.algorithm.empty(), "no all-reduce algorithm '", algorithm, "'");
  return best;
}

}  // namespace lockstep::simulate
