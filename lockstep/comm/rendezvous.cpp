#include <lockstep/comm/rendezvous.h>

#include <signal.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <utility>

#include <lockstep/comm/network.h>
#include <lockstep/comm/secret.h>
#include <lockstep/comm/secret_store.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

// Writing to the connection of a dead peer raises SIGPIPE, whose default is to end the process
// without a word; ignored, the write fails and becomes a CommError. Python does the same at its
// start.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

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

// Without a secret the port asks nobody who he is.
void warn_of_strangers(const WorkerEnvironment& environment) {
  if (environment.rank != 0 || job_secret()) return;
  const std::string address = resolve_address(environment.master_addr);
  if (address.rfind("127.", 0) == 0 || address == "::1") return;
  log_warning("whoever reaches ", environment.master_addr, ":", environment.master_port,
              " can join this job; to prevent it start all ranks with one LOCKSTEP_SECRET "
              "(openssl rand -hex 32)");
}

}  // namespace

TextExchange call_the_roll(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout) {
  ignore_broken_pipes();
  const auto secret = job_secret();
  TextExchange open(store, rank, size, timeout);
  const std::string mine = str(size);
  const std::string agreed = open.store().compareSet("world_size", "", mine);
  if (agreed != mine) {
    open.refuse(str("rank ", rank, " was started with a world of ", mine,
                    " ranks, the others with ", agreed, " (WORLD_SIZE)"));
  }
  if (open.store().add(str("rank/", rank), 1) != 1) {
    open.refuse(str("rank ", rank, " is there twice: two processes have the same RANK"));
  }
  const auto greetings = open.exchange("roll call", secret_greeting(secret));
  const auto key = prove_secret(open, greetings, secret);
  if (!key) return open;
  return {c10::make_intrusive<SecretStore>(std::move(store), *key), rank, size, timeout};
}

std::string address_for_peers(const std::string& meeting_host, std::uint16_t port,
                              bool several_hosts) {
  const std::string route = local_address_towards(meeting_host, port);
  // On rank 0's host the way to a name that means loopback there is loopback.
  const std::string address =
      resolve_address(meeting_host) == route ? meeting_address(meeting_host, several_hosts) : route;
  if (address == kAnyAddress) {
    throw ConfigError(str("this host has several addresses, and none leads to MASTER_ADDR=",
                          meeting_host, "; give an address instead of a name"));
  }
  return address;
}

Meeting rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout) {
  ignore_broken_pipes();
  try {
    auto store = connect_store(environment, timeout);
    // Attempts of an elastic job, and what else uses the launcher's store, must not meet our keys.
    auto ours = c10::make_intrusive<c10d::PrefixStore>(str("lockstep/", environment.restart_count),
                                                       std::move(store));
    warn_of_strangers(environment);
    TextExchange exchange =
        call_the_roll(std::move(ours), environment.rank, environment.world_size, timeout);
    return {std::move(exchange), address_for_peers(environment.master_addr, environment.master_port,
                                                   on_several_hosts(environment))};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, " lost the store at ", environment.master_addr,
                        ":", environment.master_port, " (did rank 0 end?): ", first_line(error)));
  }
}

}  // namespace lockstep
