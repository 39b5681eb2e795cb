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

// The ranks of `ranks` whose all-reduce is modelled from messages, not measured.
std::vector<int> modelled_ranks(const MeasuredNetwork& measured, const std::vector<int>& ranks) {
  std::vector<int> others;
  std::ranges::copy_if(ranks, std::back_inserter(others),
                       [&](int count) { return count > 1 && count != measured.ranks; });
  return others;
}

// Sizes outside of the measurement: whole buckets with the measured number of ranks, a ring's
// messages with other numbers.
std::optional<std::string> sizes_beyond(const StepProfile& profile, const Network& network,
                                        const std::vector<int>& ranks,
                                        const SimulationOptions& options) {
  const auto& points = network.measured->all_reduce.alone.points();
  const SizeRange measured{.least = points.front().bytes, .most = points.back().bytes};
  const SizeRange needed = sizes_of(buckets_of(profile, options), options.bytes_factor);
  const auto sentence = [&](const std::string& what, const SizeRange& sizes,
                            const SizeRange& known) {
    return str(what, " of ", range_text(sizes), " are beyond the measured ", range_text(known),
               ": their times are extrapolated (`lockstep bench comm --sizes` measures others)");
  };
  const int own = network.measured->ranks;
  if (std::ranges::find(ranks, own) != ranks.end() && !measured.holds(needed)) {
    return sentence(str("buckets on ", amount_of(own, "rank")), needed, measured);
  }
  const std::vector<int> others = modelled_ranks(*network.measured, ranks);
  if (others.empty()) return std::nullopt;
  const auto [fewest, most] = std::ranges::minmax(others);
  const SizeRange messages{.least = needed.least / most, .most = needed.most / fewest};
  const SizeRange known{.least = measured.least / own, .most = measured.most / own};
  if (known.holds(messages)) return std::nullopt;
  return sentence(str("messages on ", ranks_text(others), " ranks"), messages, known);
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
  const std::vector<int> others = modelled_ranks(measured, ranks);
  if (!others.empty()) {
    const char* const without =
        measured.all_reduce.taken.empty() ? "" : " without what it takes from computing";
    to.push_back(str("the network was measured on ", amount_of(measured.ranks, "rank"),
                     ": what it takes on ", ranks_text(others), " is modelled", without,
                     ", and no interval was checked there"));
  }
  if (const auto sizes = sizes_beyond(profile, network, ranks, options)) to.push_back(*sizes);
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
  if (most_ranks < 2) return found;
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
