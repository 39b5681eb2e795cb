// What a rank tells its peers before they form a group: its requests and capabilities. Each rank
// learns those of all ranks, so that all make the same decisions.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <vector>

#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep::comm {

struct PeerInfo {
  std::string backend;  ///< requested backend
  std::string device;   ///< device type: "cpu", "cuda"
  std::string gpu;      ///< globally unique name; empty for a CPU, and for CUDA without NCCL
  std::string host;     ///< equal on ranks that may be able to share memory
  int world_rank = 0;
  std::string label;  ///< this rank's proposed name for the group; rank 0's is used
  std::time_t joined_at = 0;
  pid_t process = 0;
};

/// Makes options.device the current device of this thread, and returns this rank's PeerInfo. Throws
/// ConfigError, which names the rank, if the device cannot be used.
PeerInfo own_peer_info(const ProcessGroupOptions& options, int world_rank,
                       const std::string& label);

/// The topic of exchange_peer_infos().
inline constexpr const char* kChoiceOfBackend = "choice of the backend";

/// Collective. Returns the PeerInfo of every rank, in rank order. Throws ConfigError if the
/// requests differ.
std::vector<PeerInfo> exchange_peer_infos(TextExchange& exchange, const PeerInfo& own);

/// "20261122T011201Z-4711": the UTC time at which rank 0 joined, and its process id. Unique among
/// the jobs of a host.
std::string job_name(const std::vector<PeerInfo>& peers);

/// Whether each rank has a GPU that NCCL can use and no two ranks share a GPU, which NCCL refuses.
bool each_has_a_gpu(const std::vector<PeerInfo>& peers);

/// "ranks 0, 1 share a GPU; ranks 2, 3 share another", with ranks of the first group; empty if no
/// two ranks compute on the same device.
std::string shared_devices(const std::vector<PeerInfo>& peers);

/// hosts[h] lists the ranks of a host in ascending order; hosts are ordered by their first ranks.
std::vector<std::vector<int>> ranks_by_host(const std::vector<PeerInfo>& peers);

}  // namespace lockstep::comm
