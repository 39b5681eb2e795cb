// Which transport a group gets, and its connection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/group/membership.h>

namespace lockstep {

/// Whether a group that asks for the backend `wanted` and has these members goes over NCCL.
bool becomes_nccl(const std::string& wanted, const std::vector<Profile>& profiles);

/// Collective over the members: at least two, or one that asks for NCCL. See
/// ProcessGroupOptions::backend and ::leaders for the rules. CommError where the wanted backend
/// cannot connect them, ConfigError where it cannot be: on all ranks.
std::shared_ptr<Backend> choose_backend(Membership& membership);

}  // namespace lockstep
