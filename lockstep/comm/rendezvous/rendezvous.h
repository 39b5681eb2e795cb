// How ranks meet: a key-value store at an address that all of them know, and a roll call.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

struct Meeting {
  TextExchange exchange;
  std::string own_address;  ///< of this host, for connections from its peers
};

/// Collective. Rank 0 serves a store (store/server.h), bound to the interface of MASTER_ADDR alone
/// (unless the launcher serves one already); the others connect. Then every rank reports, and all
/// wait until all have: TimeoutError names the missing ranks, CommError a rank that is there twice
/// or that believes in another world size, or that does not know the secret of the others
/// (secret.h). ConfigError where a store of ours would be reached from other machines and there is
/// no secret. After a failure rank 0 still holds environment.listen_fd: another attempt may follow,
/// if the store is ours. After success it has closed it. `host_timeout`: as in ProcessGroupOptions.
Meeting rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout,
                   std::chrono::milliseconds host_timeout = std::chrono::milliseconds(0));

/// Collective. The roll call alone, over a store that no other group uses: what the ranks exchange
/// from then on, which is sealed where they have a secret. `world_rank`: this rank in the first
/// group, for messages. `meanwhile` is called while waiting, also in what is exchanged from then
/// on.
TextExchange call_the_roll(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout, int world_rank,
                           TextExchange::Check meanwhile = {});

/// `store`, where the keys of this attempt of an elastic job are apart from those of others, which
/// a launcher that keeps its store leaves there, and from what else uses it.
c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store,
                                                 int restart_count);

/// This host's address that peers reach who reach `meeting_host`.
std::string address_for_peers(const std::string& meeting_host, std::uint16_t port,
                              bool several_hosts);

}  // namespace lockstep
