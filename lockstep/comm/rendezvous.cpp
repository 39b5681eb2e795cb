#include <lockstep/comm/rendezvous.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/comm/network.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

bool on_several_hosts(const WorkerEnvironment& environment) {
  return environment.local_world_size < environment.world_size;
}

c10::intrusive_ptr<c10d::Store> connect_store(const WorkerEnvironment& environment,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.timeout = timeout;
  options.waitWorkers = false;  // the roll call below waits, and says for whom
  options.isServer = environment.rank == 0 && !environment.agent_store;
  std::string host = environment.master_addr;
  if (options.isServer) {
    // Without a descriptor TCPStore would listen on every interface of the machine.
    if (environment.listen_fd) {
      options.masterListenFd = environment.listen_fd;
    } else {
      const std::string address = meeting_address(host, on_several_hosts(environment));
      options.masterListenFd = listen_on(address, environment.master_port);
      host = address == kAnyAddress ? "127.0.0.1" : address;
    }
    options.port = bound_port(*options.masterListenFd);
  } else {
    // TCPStore retries once a second and with warnings on the terminal; ours is quick and silent.
    wait_for_listener(host, environment.master_port, timeout);
  }
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

void call_the_roll(TextExchange& exchange, const WorkerEnvironment& environment) {
  const std::string mine = str(environment.world_size);
  const std::string agreed = exchange.store().compareSet("world_size", "", mine);
  if (agreed != mine) {
    exchange.refuse(str("rank ", environment.rank, " was started with a world of ", mine,
                        " ranks, the others with ", agreed, " (WORLD_SIZE)"));
  }
  if (exchange.store().add(str("rank/", environment.rank), 1) != 1) {
    exchange.refuse(str("rank ", environment.rank, " is there twice: two processes have the same RANK"));
  }
  exchange.exchange("roll call", "");
}

std::string address_for_peers(const WorkerEnvironment& environment, bool several_hosts) {
  const std::string route = local_address_towards(environment.master_addr, environment.master_port);
  // On rank 0's host the way to a name that means loopback there is loopback.
  const std::string address =
      resolve_address(environment.master_addr) == route
          ? meeting_address(environment.master_addr, several_hosts)
          : route;
  if (address == kAnyAddress) {
    throw ConfigError(str("this host has several addresses, and none leads to MASTER_ADDR=",
                          environment.master_addr, "; give an address instead of a name"));
  }
  return address;
}

}  // namespace

Meeting rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout) {
  try {
    auto store = connect_store(environment, timeout);
    // Attempts of an elastic job, and what else uses the launcher's store, must not meet our keys.
    auto ours = c10::make_intrusive<c10d::PrefixStore>(
        str("lockstep/", environment.restart_count), std::move(store));
    TextExchange exchange(std::move(ours), environment.rank, environment.world_size, timeout);
    call_the_roll(exchange, environment);
    return {std::move(exchange), address_for_peers(environment, on_several_hosts(environment))};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, " lost the store at ", environment.master_addr, ":",
                        environment.master_port, " (did rank 0 end?): ", first_line(error)));
  }
}

}  // namespace lockstep
