// The network between the ranks of a simulation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/simulate/error_share.h>
#include <lockstep/simulate/message_cost.h>

namespace lockstep::simulate {

/// Times of a whole collective, measured by `lockstep bench comm`, as functions of the size of a
/// rank's tensor.
struct MeasuredCollective {
  MessageCost alone{};  ///< the caller only waits for it
  /// The caller computes meanwhile (`bench comm --beside-computing`): the time to the end of the
  /// collective, and the time for which computing stood still because the same processor moved the
  /// data. Empty: not measured; computing is assumed not to be slowed.
  MessageCost beside{};
  MessageCost taken{};
};

/// The measurements for one number of ranks.
struct MeasuredNetwork {
  int ranks = 2;
  std::string backend{};  ///< "shm", "gloo", "nccl", "hierarchical"
  MeasuredCollective all_reduce{};
  std::optional<MeasuredCollective> reduce_scatter{};
  std::optional<MeasuredCollective> all_gather{};
};

struct Network {
  std::string name{};
  Wire wire = Wire::kNetwork;
  MessageCost between_hosts{};
  /// Between two ranks of one host. Used if a host has several ranks.
  MessageCost within_host{};
  double gamma_seconds_per_byte = 0;  ///< adding one byte to another, if the costs above exclude it
  std::optional<MeasuredNetwork> measured{};
  /// Whether threads of the library move the data and each rank has only one processor, which they
  /// share with computing.
  bool shares_processor = false;
};

/// Parses "1gbit", "10gbit", "25gbit", "100gbit" (Ethernet with TCP), "nvlink", or
/// "ALPHA_US,GB_PER_S": the latency of a message in microseconds, and the bandwidth in units of 1e9
/// bytes per second. All but "nvlink" also have NVLink within each host. docs/simulate.md defines
/// the names. Throws a ConfigError that begins with `option` if `text` is anything else.
Network named_network(const std::string& option, const std::string& text);

/// Reads the output of `lockstep bench comm --json`: its rows of all_reduce, and of reduce_scatter
/// and all_gather if it has them. Only rows of algorithm "auto" or "native" count; if both kinds of
/// memory were measured, only those in memory of the group. The cost of a message is derived by
/// assuming a ring: an all-reduce of n bytes on p ranks is 2 (p - 1) messages of n / p bytes.
/// Gloo's rows are assumed to come from one host unless they state several. Throws a DataError if
/// the file is not such output, or if a collective has only one size, from which the cost of other
/// sizes cannot be derived.
Network read_network(const std::filesystem::path& file);

/// Reads the file `text` if it exists; otherwise takes `text` as a name (named_network()).
Network find_network(const std::string& option, const std::string& text);

/// The network at `factor` times its speed; latencies and the processor's time do not change. The
/// links within a host change only if they are the same as those between hosts, as in "nvlink" and
/// in a measurement.
Network at_speed(const Network& network, double factor);

}  // namespace lockstep::simulate
