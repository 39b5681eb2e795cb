// The ranks of a group prove to each other, over the connections that Gloo has made, that each is
// at the other end.
//
// Gloo takes whoever connects to its listening socket first, and sends a small number, for the rank
// of that number, and then exchanges tensors with it. The addresses of the sockets are secret, but
// anyone can find the ports.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::gloo {

/// Collective. Returns a key that all members of the group have, and that is as secret as the
/// entries of `store`. `store` holds only this group's keys; one remains in it.
std::string shared_key(c10d::Store& store, int rank);

/// Collective. Exchanges random numbers, and then their HMAC-SHA256 under `key`, with each other
/// member. `names` are the members' ranks in the first group. If another process has taken a
/// member's place, ends the group for all and throws CommError, which names the two ranks; throws
/// TimeoutError if a member proves nothing until `timeout`.
void prove_peers(comm::Backend& backend, const std::string& key, int rank,
                 const std::vector<int>& names, std::chrono::milliseconds timeout);

}  // namespace lockstep::gloo
