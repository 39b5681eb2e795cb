// How ranks meet: a key-value store at an address that all of them know, and a roll call.
#pragma once

#include <chrono>
#include <string>

#include <lockstep/comm/text_exchange.h>
#include <lockstep/comm/worker_environment.h>

namespace lockstep {

struct Meeting {
  TextExchange exchange;
  std::string own_address;  ///< of this host, for connections from its peers
};

/// Collective. Rank 0 serves PyTorch's TCPStore, bound to the interface of MASTER_ADDR alone (unless
/// the launcher serves one already); the others connect. Then every rank reports, and all wait until
/// all have: TimeoutError names the missing ranks, CommError a rank that is there twice or that
/// believes in another world size.
Meeting rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout);

}  // namespace lockstep
