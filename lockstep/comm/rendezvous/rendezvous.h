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

struct OwnAddress {
  /// The address of this host under which peers can connect to it.
  std::string address{};
  /// Why a rank has none, on all ranks alike; empty if each has one.
  std::string problem{};
};

/// Collective if peers are on other hosts (`several_hosts`). All ranks can reach `meeting_host`,
/// and connect to each other on the same way. If this is the name of rank 0's host on loopback, the
/// other hosts know the address. Throws CommError, on all ranks, if one does not know the way.
OwnAddress find_own_address(TextExchange& exchange, const std::string& meeting_host,
                            std::uint16_t port, bool several_hosts,
                            std::chrono::milliseconds timeout);

/// Collective. The part of find_own_address() in which the ranks talk. `known` is this rank's
/// address, and `contact` the one at which it reaches the meeting point; both are empty on a rank
/// beside rank 0 that knows only loopback. Such a rank takes another's contact, if it is an address
/// of this host.
OwnAddress agree_on_address(TextExchange& exchange, const std::string& known,
                            const std::string& contact);

}  // namespace lockstep::comm
