// The rendezvous: ranks meet through a key-value store at an address that all of them know, and
// then hold a roll call.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::comm {

/// Collective. Rank 0 serves a store (store/server.h), bound to the interface of MASTER_ADDR only,
/// unless the launcher already serves one; the others connect. Then every rank reports and waits
/// for all others. Throws TimeoutError, which names the missing ranks; CommError, which names a
/// rank that appears twice, expects another world size, or does not know the others' secret
/// (secret.h), or says that MASTER_ADDR cannot be resolved; and ConfigError if other machines could
/// reach a store served by rank 0 and there is no secret. Returns the channel for all further
/// exchanges between the ranks, as call_the_roll() does. After a failure rank 0 still holds
/// environment.listen_fd, so another attempt may follow if rank 0 serves the store. After success
/// it has closed the descriptor. `host_timeout` is that of ProcessGroupOptions.
TextExchange rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout,
                        std::chrono::milliseconds host_timeout = std::chrono::milliseconds(0));

/// Collective. Holds only the roll call, over a store that no other group uses. Returns the channel
/// for all further exchanges between the ranks, which is encrypted if they have a secret.
/// `world_rank` is this rank's number in the first group, for error messages. `meanwhile` is called
/// during waits, here and in later exchanges.
TextExchange call_the_roll(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout, int world_rank,
                           TextExchange::Check meanwhile = {});

/// A view of `store` for this attempt of an elastic job. It separates the attempt's keys from the
/// keys of other attempts, which stay in a launcher's store, and from other users of the store.
c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store,
                                                 int restart_count);

/// The address of this host under which peers can connect to it, if all can reach `meeting_host`.
/// `several_hosts` says whether peers are on other hosts. Empty if it cannot be known, because
/// `meeting_host` is this host's name on loopback, and the host has several other addresses, or
/// none.
std::string address_for_peers(const std::string& meeting_host, std::uint16_t port,
                              bool several_hosts);

}  // namespace lockstep::comm
