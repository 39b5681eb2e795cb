// What a rank wants and has. All ranks see all profiles, and so decide alike.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/process_group_options.h>
#include <lockstep/comm/text_exchange.h>

namespace lockstep {

struct Profile {
  std::string backend;  ///< wanted
  std::string device;   ///< "cpu", "cuda"
  std::string gpu;      ///< which one in the world; empty without NCCL
  std::string host;     ///< equal where processes may be able to share memory
  std::string leaders;  ///< wanted between hosts: "auto", "gloo", "nccl"
  int world_rank = 0;
  std::string label;  ///< how it would name the group; rank 0's is taken
};

Profile own_profile(const ProcessGroupOptions& options, int world_rank, const std::string& label);

/// Collective. Those of all ranks, in their order. ConfigError where they want different things.
std::vector<Profile> exchange_profiles(TextExchange& exchange, const Profile& own);

/// NCCL refuses two ranks on one GPU.
bool each_has_a_gpu(const std::vector<Profile>& profiles);

/// hosts[h]: the ranks of a host, in their order; hosts in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_host(const std::vector<Profile>& profiles);

}  // namespace lockstep
