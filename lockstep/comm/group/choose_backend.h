// Chooses a group's transport and connects it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/group/membership.h>

namespace lockstep::comm {

/// The topic of the exchange with which connecting ends, once the backend is chosen.
inline constexpr const char* kEndOfRendezvous = "end of the rendezvous";

/// Whether a group with these members that asks for the backend `wanted` uses NCCL.
bool becomes_nccl(const std::string& wanted, const std::vector<PeerInfo>& peers);

/// Collective over the members: at least two, or one that asks for NCCL.
/// ProcessGroupOptions::backend describes the rules. Throws CommError if the requested backend
/// fails to connect the members, and ConfigError if it cannot be used for them. The others notice a
/// rank that fails if this call is an attempt of their exchange under kEndOfRendezvous.
std::shared_ptr<Backend> choose_backend(Membership& membership);

}  // namespace lockstep::comm
