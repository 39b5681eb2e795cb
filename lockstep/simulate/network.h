// What connects the ranks of a simulation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/simulate/error_share.h>
#include <lockstep/simulate/message_cost.h>

namespace lockstep {

/// What `lockstep bench comm` measured of a whole collective, by the bytes of a rank's tensor.
struct MeasuredCollective {
  MessageCost alone{};  ///< the caller waits for it
  /// The caller computes meanwhile (`bench comm --beside-computing`): until the end of the
  /// collective, and how long computing stood still because the same processor moved the data.
  /// Empty: not measured, computing is not slowed.
  MessageCost beside{};
  MessageCost taken{};
};

/// What was measured with one number of ranks.
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
  /// Between two ranks of one host. Used where a host has several ranks.
  MessageCost within_host{};
  double gamma_seconds_per_byte =
      0;  ///< adding one byte to another, where that is not in the above
  std::optional<MeasuredNetwork> measured{};
  /// Threads of the library move the data, and each rank has one processor for them and for
  /// computing.
  bool shares_processor = false;
};

/// "1gbit", "10gbit", "25gbit", "100gbit" (Ethernet with TCP), "nvlink", or "ALPHA_US,GB_PER_S":
/// what a message costs however short, in microseconds, and 1e9 bytes a second. Inside of a host
/// all but "nvlink" have NVLink, too. What the names stand for is in docs/simulate.md. ConfigError,
/// which begins with `option`, for another text.
Network named_network(const std::string& option, const std::string& text);

/// Reads what `lockstep bench comm --json` wrote: its rows of all_reduce, and of reduce_scatter and
/// all_gather where it has them; of algorithm "auto" or "native", in the memory of the group where
/// both kinds were measured. The cost of a message follows from a ring's: an all-reduce of n bytes
/// on p ranks is 2 (p - 1) messages of n / p bytes. Gloo's rows are taken for those of one host
/// unless they say that there were several. DataError for another file, and for a
/// collective of one size, which does not tell what others cost.
Network read_network(const std::filesystem::path& file);

/// A file that exists, else a name.
Network find_network(const std::string& option, const std::string& text);

/// The network at `factor` times its speed; latencies and the processor's time stay.
Network at_speed(const Network& network, double factor);

}  // namespace lockstep
