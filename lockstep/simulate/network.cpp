#include <lockstep/simulate/network.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/core/suggestion.h>

namespace lockstep::simulate {
namespace {

using NetworkJson = nlohmann::json;

constexpr const char* kNoMeasurement = "is not what `lockstep bench comm --json` writes";

struct NamedLink {
  const char* name;
  double alpha_seconds;
  double bytes_per_second;
};

// Ethernet carries data at 94% of its line rate (1,460 of 1,538 bytes of a frame). Latencies are
// those of TCP between two hosts on one switch, including kernel and library. NVLink is one
// direction of an A100's, as NCCL reaches it.
constexpr double kPayload = 0.94;
constexpr double kGigabit = 1e9 / 8;
constexpr std::array<NamedLink, 5> kLinks = {{{"1gbit", 50e-6, kPayload* kGigabit},
                                              {"10gbit", 30e-6, kPayload * 10 * kGigabit},
                                              {"25gbit", 25e-6, kPayload * 25 * kGigabit},
                                              {"100gbit", 15e-6, kPayload * 100 * kGigabit},
                                              {"nvlink", 4e-6, 230e9}}};

MessageCost cost_of(const NamedLink& link) {
  return MessageCost::of(link.alpha_seconds, link.bytes_per_second);
}

// Parses "18,2.4". Returns false for another text.
bool parse_alpha_beta(const std::string& text, double& alpha_us, double& gigabytes) {
  const char* const end = text.data() + text.size();
  const auto [comma, error] = std::from_chars(text.data(), end, alpha_us);
  if (error != std::errc() || comma == end || *comma != ',') return false;
  const auto [stop, second] = std::from_chars(comma + 1, end, gigabytes);
  constexpr double kMostMicroseconds = 1e9, kMostGigabytes = 1e6;
  return second == std::errc() && stop == end && alpha_us >= 0 && alpha_us <= kMostMicroseconds &&
         gigabytes > 0 && gigabytes <= kMostGigabytes;
}

// The points of one collective.
struct MeasuredPoints {
  std::vector<MessageCost::Point> alone{}, beside{}, taken{};

  MeasuredCollective costs() const {
    MeasuredCollective costs{.alone = MessageCost(alone)};
    if (beside.size() != alone.size()) return costs;
    costs.beside = MessageCost(beside);
    costs.taken = MessageCost(taken);
    return costs;
  }
};

bool is_of_interest(const NetworkJson& row, bool symmetric) {
  const std::string algorithm = row.at("algorithm").get<std::string>();
  return (algorithm == "auto" || algorithm == "native") && row.at("symmetric") == symmetric;
}

void add(const NetworkJson& row, MeasuredPoints& to) {
  constexpr double kMicro = 1e-6;
  const double bytes = row.at("bytes").get<double>();
  to.alone.push_back({bytes, kMicro * row.at("median_us").get<double>()});
  if (!row.contains("beside_us") || row.at("beside_us").is_null()) return;
  to.beside.push_back({bytes, kMicro * row.at("beside_us").get<double>()});
  to.taken.push_back({bytes, kMicro * row.at("taken_us").get<double>()});
}

// The cost of a message in a ring, see read_network().
MessageCost message_of(const MessageCost& all_reduce, int ranks) {
  std::vector<MessageCost::Point> points;
  for (const MessageCost::Point& point : all_reduce.points()) {
    points.push_back({point.bytes / ranks, point.seconds / (2 * (ranks - 1))});
  }
  return MessageCost(std::move(points));
}

Wire wire_of(const std::string& backend, int hosts) {
  if (backend == "shm") return Wire::kSharedMemory;
  return backend == "gloo" && hosts == 1 ? Wire::kOneHost : Wire::kNetwork;
}

Network network_of(const NetworkJson& rows) {
  if (!rows.is_array()) throw DataError("an array of rows is expected");
  const bool symmetric = std::ranges::any_of(rows, [](const NetworkJson& row) {
    return row.at("collective") == "all_reduce" && is_of_interest(row, true);
  });
  std::map<std::string, MeasuredPoints> points;
  Network network;
  MeasuredNetwork measured;
  for (const NetworkJson& row : rows) {
    if (!is_of_interest(row, symmetric)) continue;
    const std::string collective = row.at("collective").get<std::string>();
    add(row, points[collective]);
    if (collective != "all_reduce") continue;
    measured.ranks = row.at("ranks").get<int>();
    measured.backend = row.at("backend").get<std::string>();
    network.wire = wire_of(measured.backend, row.value("hosts", 1));
    network.shares_processor = measured.backend == "gloo" && row.value("processors", 0) == 1;
  }
  if (!points.contains("all_reduce") || measured.ranks < 2) {
    throw DataError("there is no row of an all_reduce on at least 2 ranks");
  }
  measured.all_reduce = points["all_reduce"].costs();
  if (points.contains("reduce_scatter")) measured.reduce_scatter = points["reduce_scatter"].costs();
  if (points.contains("all_gather")) measured.all_gather = points["all_gather"].costs();
  network.name = measured.backend + ", measured";
  network.between_hosts = message_of(measured.all_reduce.alone, measured.ranks);
  network.within_host = network.between_hosts;
  network.measured = std::move(measured);
  return network;
}

// A line needs two points; with one, a message of any size would take the same.
void check_sizes(const std::filesystem::path& file, const std::string& collective,
                 const MeasuredCollective& measured) {
  if (measured.alone.points().size() >= 2) return;
  throw DataError(str(file.string(), ": ", collective,
                      " was measured with one size; the cost of others needs at least 2 "
                      "(`lockstep bench comm --sizes`)"));
}

// A collective that was not measured is derived from the others.
void check_sizes(const std::filesystem::path& file, const MeasuredNetwork& measured) {
  check_sizes(file, "all_reduce", measured.all_reduce);
  if (measured.reduce_scatter) check_sizes(file, "reduce_scatter", *measured.reduce_scatter);
  if (measured.all_gather) check_sizes(file, "all_gather", *measured.all_gather);
}

MeasuredCollective at_speed(const MeasuredCollective& collective, double factor) {
  return {.alone = collective.alone.at_speed(factor),
          .beside = collective.beside.at_speed(factor),
          .taken = collective.taken};
}

}  // namespace

Network named_network(const std::string& option, const std::string& text) {
  const MessageCost nvlink = cost_of(kLinks.back());
  for (const NamedLink& link : kLinks) {
    if (text == link.name) {
      return {.name = text, .between_hosts = cost_of(link), .within_host = nvlink};
    }
  }
  double alpha_us = 0, gigabytes = 0;
  if (!parse_alpha_beta(text, alpha_us, gigabytes)) {
    std::vector<std::string> names;
    for (const NamedLink& link : kLinks) names.emplace_back(link.name);
    throw ConfigError(
        str(option, " must be ", join(names),
            ", ALPHA_US,GB_PER_S as in 20,2.5, or a file that `lockstep bench comm --json` "
            "has written, got '",
            text, "'", did_you_mean(text, names)));
  }
  constexpr double kMicro = 1e-6, kGiga = 1e9;
  return {.name = text,
          .between_hosts = MessageCost::of(kMicro * alpha_us, kGiga * gigabytes),
          .within_host = nvlink};
}

Network read_network(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  Network network;
  try {
    network = network_of(NetworkJson::parse(stream));
  } catch (const NetworkJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNoMeasurement, error));
  } catch (const Error& error) {
    throw DataError(json_refusal(file.string(), kNoMeasurement, error));
  }
  check_sizes(file, *network.measured);
  return network;
}

Network find_network(const std::string& option, const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored)) return read_network(text);
  return named_network(option, text);
}

Network at_speed(const Network& network, double factor) {
  Network changed = network;
  changed.between_hosts = network.between_hosts.at_speed(factor);
  if (network.within_host.points() == network.between_hosts.points()) {
    changed.within_host = changed.between_hosts;
  }
  if (!network.measured) return changed;
  changed.measured->all_reduce = at_speed(network.measured->all_reduce, factor);
  for (auto* const collective :
       {&changed.measured->reduce_scatter, &changed.measured->all_gather}) {
    if (*collective) *collective = at_speed(**collective, factor);
  }
  return changed;
}

}  // namespace lockstep::simulate
