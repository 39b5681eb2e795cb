// What a rank wants and has. All ranks see all profiles, and so decide alike.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <vector>

#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep {

struct Profile {
  std::string backend;  ///< wanted
  std::string device;   ///< its type: "cpu", "cuda"
  std::string gpu;      ///< which one in the world; empty for a CPU, and for CUDA without NCCL
  std::string host;     ///< equal where processes may be able to share memory
  std::string leaders;  ///< wanted between hosts: "auto", "gloo", "nccl"
  int world_rank = 0;
  std::string label;  ///< how it would name the group; rank 0's is taken
  std::time_t joined_at = 0;
  pid_t process = 0;
};

/// What this rank wants and has. ConfigError, before it meets the others, for leaders that are
/// none.
Profile own_profile(const ProcessGroupOptions& options, int world_rank, const std::string& label);

/// Collective. Those of all ranks, in their order. ConfigError where they want different things.
std::vector<Profile> exchange_profiles(TextExchange& exchange, const Profile& own);

/// "20261122T011201Z-4711": when, by UTC, and as which process rank 0 joined. No two jobs of a host
/// share it.
std::string job_name(const std::vector<Profile>& profiles);

/// Whether each rank has a GPU that NCCL can use, and no two ranks the same one, which NCCL
/// refuses.
bool each_has_a_gpu(const std::vector<Profile>& profiles);

/// "ranks 0, 1 share a GPU; ranks 2, 3 share another", by the ranks in the first group; empty where
/// no two ranks compute on one device.
std::string shared_devices(const std::vector<Profile>& profiles);

/// hosts[h]: the ranks of a host, in their order; hosts in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_host(const std::vector<Profile>& profiles);

}  // namespace lockstep
