#include <lockstep/simulate/extrapolation.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include <lockstep/core/strings.h>

namespace lockstep::simulate {
namespace {

// A number of bytes to three significant digits: "12.3 kB".
std::string size_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1e3;
  const double step = bytes < 9.995 ? 100 : bytes < 99.95 ? 10 : 1;
  return str(std::round(bytes * step) / step, ' ', kUnits[unit]);
}

struct SizeRange {
  double least = 0;
  double most = 0;

  bool holds(const SizeRange& other) const { return other.least >= least && other.most <= most; }
};

std::string range_text(const SizeRange& range) {
  if (range.least == range.most) return size_text(range.least);
  return str(size_text(range.least), " to ", size_text(range.most));
}

SizeRange sizes_of(const std::vector<ProfileBucket>& buckets, double factor) {
  const auto [least, most] = std::ranges::minmax(buckets, {}, &ProfileBucket::bytes);
  return {.least = factor * least.bytes, .most = factor * most.bytes};
}

// "4" or "4 to 4096"
std::string ranks_text(const std::vector<int>& ranks) {
  const auto [least, most] = std::ranges::minmax(ranks);
  return least == most ? str(least) : str(least, " to ", most);
}

// Whether all ranks share a host, regardless of --ranks-per-host.
bool is_within_host(const Network& network) { return network.wire != Wire::kNetwork; }

std::optional<std::string> shared_processors(const StepProfile& profile, const Network& network,
                                             int most_ranks, const SimulationOptions& options) {
  if (profile.processors < 1) return std::nullopt;  // not known, or not what computes
  const int local =
      is_within_host(network) ? most_ranks : std::min(most_ranks, options.ranks_per_host);
  const std::int64_t threads = std::int64_t{local} * profile.threads_per_rank;
  if (threads <= profile.processors) return std::nullopt;
  return str(amount_of(local, "rank"), " of one host compute with ", threads,
             " threads, and the host of the run has ", amount_of(profile.processors, "processor"),
             ": ranks that share processors take longer than predicted");
}

// More ranks wait longer for the slowest of them; how long is modelled (predict_step()).
std::optional<std::string> modelled_stragglers(const StepProfile& profile, int most_ranks,
                                               const SimulationOptions& options) {
  const bool waits = options.has_stragglers && profile.straggler_seconds > 0;
  if (!waits || most_ranks <= profile.ranks) return std::nullopt;
  return str("the run had ", amount_of(profile.ranks, "rank"), ": how long up to ", most_ranks,
             " ranks wait for the slowest of them is modelled");
}

// The ranks of `ranks` whose all-reduce is modelled from messages, not measured.
std::vector<int> modelled_ranks(const MeasuredNetwork& measured, const std::vector<int>& ranks) {
  std::vector<int> others;
  std::ranges::copy_if(ranks, std::back_inserter(others),
                       [&](int count) { return count > 1 && count != measured.ranks; });
  return others;
}

std::string beyond_text(const std::string& what, const SizeRange& sizes, const SizeRange& known) {
  return str(what, " of ", range_text(sizes), " are beyond the measured ", range_text(known),
             ": their times are extrapolated (`lockstep bench comm --sizes` measures others)");
}

SizeRange measured_sizes(const MeasuredCollective& collective) {
  const auto& points = collective.alone.points();
  return {.least = points.front().bytes, .most = points.back().bytes};
}

// The buckets of the measured number of ranks that are outside of the measured sizes of one of the
// collectives that the strategy uses. The parameters that zero1 gathers are not scaled.
std::optional<std::string> buckets_beyond(const StepProfile& profile,
                                          const MeasuredNetwork& measured,
                                          const SimulationOptions& options) {
  const std::vector<ProfileBucket> buckets = buckets_of(profile, options);
  const SizeRange gradients = sizes_of(buckets, options.bytes_factor);
  const SizeRange parameters = sizes_of(buckets, 1);
  const bool sharded = options.strategy == "zero1";
  const bool gathers = sharded && !options.shares_parameters;
  const auto refusal = [&](const char* what, const SizeRange& needed,
                           const MeasuredCollective& by) -> std::optional<std::string> {
    const SizeRange known = measured_sizes(by);
    if (known.holds(needed)) return std::nullopt;
    return beyond_text(str(what, " on ", amount_of(measured.ranks, "rank")), needed, known);
  };
  const bool scatters = sharded && measured.reduce_scatter;
  if (auto found = refusal("buckets", gradients,
                           scatters ? *measured.reduce_scatter : measured.all_reduce)) {
    return found;
  }
  if (!gathers) return std::nullopt;
  return refusal("parameters", parameters,
                 measured.all_gather ? *measured.all_gather : measured.all_reduce);
}

// The messages of a ring of these numbers of ranks that are outside of the measured ones.
std::optional<std::string> messages_beyond(const StepProfile& profile,
                                           const MeasuredNetwork& measured,
                                           const std::vector<int>& ranks,
                                           const SimulationOptions& options) {
  const SizeRange needed = sizes_of(buckets_of(profile, options), options.bytes_factor);
  const SizeRange whole = measured_sizes(measured.all_reduce);
  const auto [fewest, most] = std::ranges::minmax(ranks);
  const SizeRange messages{.least = needed.least / most, .most = needed.most / fewest};
  const SizeRange known{.least = whole.least / measured.ranks, .most = whole.most / measured.ranks};
  if (known.holds(messages)) return std::nullopt;
  return beyond_text(str("messages on ", ranks_text(ranks), " ranks"), messages, known);
}

// The collectives of zero1 that were not measured, for the number of ranks that was.
std::optional<std::string> halved_collectives(const MeasuredNetwork& measured,
                                              const SimulationOptions& options) {
  if (options.strategy != "zero1") return std::nullopt;
  std::vector<std::string> halved;
  if (!measured.reduce_scatter) halved.emplace_back("reduce_scatter");
  if (!measured.all_gather && !options.shares_parameters) halved.emplace_back("all_gather");
  if (halved.empty()) return std::nullopt;
  return str(join(halved, " and "), " on ", amount_of(measured.ranks, "rank"),
             halved.size() > 1 ? " were" : " was",
             " not measured: half of the all-reduce's time is assumed");
}

// Hosts whose ranks share the parameters gather them from each other, with one message a host.
std::optional<std::string> gather_of_hosts(const Network& network,
                                           const SimulationOptions& options) {
  const RankPlaces places{.ranks = network.measured->ranks,
                          .ranks_per_host = options.ranks_per_host};
  const bool is_one_host = is_within_host(network) || places.hosts() == 1;
  if (options.strategy != "zero1" || !options.shares_parameters || is_one_host) return std::nullopt;
  return str("the parameters that ", places.hosts(),
             " hosts gather from each other are not a collective that was measured: their time is "
             "modelled from messages");
}

void add_of_measured(const StepProfile& profile, const Network& network,
                     const std::vector<int>& ranks, const SimulationOptions& options,
                     std::vector<std::string>& to) {
  const MeasuredNetwork& measured = *network.measured;
  if (measured.backend != "shm" && measured.backend != "gloo") {
    to.push_back(str("no prediction over ", measured.backend,
                     " was ever compared with a measurement: its intervals are those of Gloo "
                     "between hosts"));
  }
  const bool is_chosen = options.algorithm != "auto";  // the measured one may be another
  std::vector<int> others = modelled_ranks(measured, ranks);
  if (!others.empty()) {
    const char* const without =
        measured.all_reduce.taken.empty() ? "" : " without what it takes from computing";
    to.push_back(str("the network was measured on ", amount_of(measured.ranks, "rank"),
                     ": what it takes on ", ranks_text(others), " is modelled", without,
                     ", and no interval was checked there"));
  }
  if (options.speed != 1) {
    to.push_back(str("the network was measured at its own speed: at ", options.speed,
                     " times that, only what exceeds the latency changes, which is estimated from "
                     "the two smallest sizes"));
  }
  const auto add = [&to](const std::optional<std::string>& sentence) {
    if (sentence) to.push_back(*sentence);
  };
  if (std::ranges::find(ranks, measured.ranks) != ranks.end()) {
    if (is_chosen) {
      to.push_back(str("the network was not measured with the algorithm ", options.algorithm,
                       ": what it takes on ", amount_of(measured.ranks, "rank"),
                       " is modelled from messages"));
      others.push_back(measured.ranks);
    } else {
      add(halved_collectives(measured, options));
      add(gather_of_hosts(network, options));
      add(buckets_beyond(profile, measured, options));
    }
  }
  if (!others.empty()) add(messages_beyond(profile, measured, others, options));
}

}  // namespace

std::vector<std::string> extrapolations(const StepProfile& profile, const Network& network,
                                        const std::vector<int>& ranks,
                                        const SimulationOptions& options) {
  std::vector<std::string> found;
  const int most_ranks = std::ranges::max(ranks);
  if (const auto shared = shared_processors(profile, network, most_ranks, options)) {
    found.push_back(*shared);
  }
  if (const auto waits = modelled_stragglers(profile, most_ranks, options)) {
    found.push_back(*waits);
  }
  if (most_ranks < 2 || !options.communicates) return found;
  if (network.measured) {
    add_of_measured(profile, network, ranks, options, found);
  } else {
    found.push_back(
        str("the network ", network.name,
            " was never measured: its latency and rate are assumed, and no interval was "
            "checked there (`lockstep bench comm --beside-computing --json` measures "
            "yours)"));
  }
  return found;
}

}  // namespace lockstep::simulate
