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

// Halving and doubling between the ranks that remain when the surplus over a power of two is folded
// in. These are numbered from 0 by rank, so that those of a host are neighbours.
class HalvingRounds {
 public:
  explicit HalvingRounds(const RankPlaces& places)
      : places_(places),
        remaining_(static_cast<int>(std::bit_floor(static_cast<unsigned>(places.ranks)))),
        surplus_(places.ranks - remaining_),
        most_of_a_host_(most_crossing_by_host(remaining_)) {}

  int remaining() const { return remaining_; }
  bool folds() const { return surplus_ > 0; }

  // Whether a pair of neighbours that is folded is on two hosts. If the ranks per host are odd, the
  // first two hosts meet within a pair; if they are even, no hosts do.
  bool folds_between_hosts() const {
    return places_.ranks_per_host % 2 == 1 && places_.ranks_per_host < 2 * surplus_;
  }

  // The most messages that leave one host in the round between ranks at this distance.
  int most_crossing(int distance) const {
    return distance >= places_.ranks_per_host ? most_of_a_host_ : most_crossing_by_host(distance);
  }

 private:
  // The remaining ranks below `rank`.
  int remaining_below(int rank) const { return rank < 2 * surplus_ ? rank / 2 : rank - surplus_; }

  int most_crossing_by_host(int distance) const {
    const auto lower_partners = [distance](int end) {  // the numbers below `end` without this bit
      return end / (2 * distance) * distance + std::min(end % (2 * distance), distance);
    };
    int most = 0;
    for (int host = 0; host < places_.hosts(); ++host) {
      const int first = host * places_.ranks_per_host;
      const int begin = remaining_below(first);
      const int end = remaining_below(std::min(first + places_.ranks_per_host, places_.ranks));
      // Pairs of two ranks of this host.
      const int pairs =
          end - distance > begin ? lower_partners(end - distance) - lower_partners(begin) : 0;
      most = std::max(most, end - begin - 2 * pairs);
    }
    return most;
  }

  const RankPlaces places_;
  const int remaining_;
  const int surplus_;
  const int most_of_a_host_;
};

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
  if (places.ranks < 2) return 0;
  const HalvingRounds rounds(places);
  double seconds = adding(bytes, rounds.remaining(), network);
  double message = bytes;
  for (int distance = 1; distance < rounds.remaining(); distance *= 2) {
    message /= 2;
    const int flows = rounds.most_crossing(distance);
    const double crossing = flows > 0 ? between(message * flows, network) : 0;
    const double inside = distance < places.ranks_per_host ? within(message, network) : 0;
    seconds += 2 * std::max(crossing, inside);
  }
  if (!rounds.folds()) return seconds;
  const double crossing = rounds.folds_between_hosts() ? between(bytes, network) : 0;
  const double inside = places.ranks_per_host > 1 ? within(bytes, network) : 0;
  return seconds + 2 * std::max(crossing, inside) + network.gamma_seconds_per_byte * bytes;
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
