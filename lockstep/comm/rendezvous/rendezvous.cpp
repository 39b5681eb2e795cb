#include <lockstep/comm/rendezvous/rendezvous.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <lockstep/comm/rendezvous/secret.h>
#include <lockstep/comm/rendezvous/secret_store.h>
#include <lockstep/comm/rendezvous/store_client.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/server.h>
#include <lockstep/comm/waiting/wait_notice.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {
namespace {

constexpr const char* kRollCall = "roll call";
constexpr const char* kProof = "proof of the secret";
constexpr const char* kContacts = "addresses of the meeting point";
constexpr const char* kAddresses = "addresses of the ranks";

// Writing to the connection of a dead peer raises SIGPIPE, which by default ends the process
// without a message. If the signal is ignored, the write fails and becomes a CommError. Python also
// ignores it at startup.
void ignore_broken_pipes() {
  struct sigaction current{};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

bool on_several_hosts(const WorkerEnvironment& environment) {
  return environment.local_world_size < environment.world_size;
}

// The server closes the descriptor that it is given, so it gets a duplicate. The original stays
// open for another attempt.
int duplicate(int listen_fd) {
  const int copy = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw CommError(str("cannot duplicate a socket: ", errno_text(errno)));
  return copy;
}

// One rank of each host logs which store it waits for. Rank 1 also logs it, in case rank 0 is
// missing on its host.
std::function<void()> notice_of(const WorkerEnvironment& environment,
                                std::chrono::milliseconds timeout) {
  if (environment.local_rank != 0 && environment.rank != 1) return {};
  return [environment, timeout, notice = std::make_shared<WaitNotice>()] {
    notice->look(timeout, [&] {
      return str("rank ", environment.rank, " waits for the store at ",
                 host_and_port(environment.master_addr, environment.master_port),
                 environment.agent_store ? ", which the launcher serves" : ", which rank 0 serves");
    });
  };
}

struct MeetingPlace {
  std::string address{};      // at which this rank connects to the store
  bool needs_secret = false;  // strangers reach it, and there is no secret
};

// Rank 0 does not try again: it cannot listen at a name that it does not know.
MeetingPlace look_up_meeting_place(const WorkerEnvironment& environment,
                                   std::chrono::milliseconds timeout) {
  MeetingPlace place;
  const auto look_up = [&] {
    const bool several_hosts = on_several_hosts(environment);
    // The launcher's store listens where it likes, and is found by the name.
    place.address = environment.agent_store
                        ? resolve_address(environment.master_addr)
                        : contact_address(environment.master_addr, several_hosts);
    place.needs_secret =
        !job_secret() && is_reached_from_outside(environment.master_addr, several_hosts);
  };
  const auto problem = [&](const CommError& error) {
    return str("rank ", environment.rank, ": ", error.what(),
               "; set MASTER_ADDR to a name that this host knows, or to an address");
  };
  try {
    if (environment.rank == 0 && !environment.agent_store) {
      look_up();
    } else {
      retry_look_up(timeout, look_up);
    }
    return place;
  } catch (const TimeoutError& error) {
    throw TimeoutError(problem(error));
  } catch (const CommError& error) {
    throw CommError(problem(error));
  }
}

c10::intrusive_ptr<c10d::Store> connect_store(const WorkerEnvironment& environment,
                                              const std::string& address,
                                              std::chrono::milliseconds timeout,
                                              std::chrono::milliseconds host_timeout) {
  tcp_store::ConnectionOptions options{.who = str("rank ", environment.rank),
                                       .host = address,
                                       .port = environment.master_port,
                                       .timeout = timeout,
                                       .host_timeout = host_timeout,
                                       .meanwhile = notice_of(environment, timeout),
                                       .served_by_rank_0 = !environment.agent_store,
                                       .mac = mac_of(job_secret())};
  std::shared_ptr<tcp_store::Server> server;
  if (environment.rank == 0 && !environment.agent_store) {
    int listen_fd = -1;
    if (environment.listen_fd) {
      listen_fd = duplicate(*environment.listen_fd);
    } else {
      const std::string own =
          meeting_address(environment.master_addr, on_several_hosts(environment));
      listen_fd = listen_on(own, environment.master_port);
      options.host = own == kAnyAddress ? "127.0.0.1" : own;
    }
    options.port = bound_port(listen_fd);
    server = std::make_shared<tcp_store::Server>(listen_fd,
                                                 tcp_store::ServerOptions{.mac = options.mac});
  }
  return c10::make_intrusive<StoreClient>(std::move(options), std::move(server));
}

// Without a secret, any process that reaches the port can join. The launcher decides which machines
// can reach its own store, so in that case a missing secret causes only a warning.
void require_secret(const WorkerEnvironment& environment, const MeetingPlace& place) {
  if (!place.needs_secret) return;
  const std::string reason =
      str("whoever reaches the meeting point ",
          host_and_port(environment.master_addr, environment.master_port),
          " could join this job; start all ranks with the same "
          "LOCKSTEP_SECRET in their environment (made once, by: openssl rand -hex 32)");
  if (!environment.agent_store) throw ConfigError(reason);
  if (environment.rank == 0) log_warning(reason);
}

// The ranks in the first group, with which greetings begin, as in "7 greeting". The other ranks may
// not know them otherwise.
std::vector<int> names_in(const std::vector<std::string>& greetings) {
  std::vector<int> names;
  for (const std::string& greeting : greetings) {
    int name = static_cast<int>(names.size());
    std::from_chars(greeting.data(), greeting.data() + greeting.size(), name);
    names.push_back(name);
  }
  return names;
}

// Collective. Returns the key of this meeting, or nothing if no rank has a secret.
std::optional<std::string> prove_secret(TextExchange& open, SecretProof& own,
                                        const std::vector<std::string>& greetings) {
  std::optional<std::string> proof;
  try {
    proof = own.proof(greetings, open.world_ranks());
  } catch (const CommError& error) {
    open.refuse(kProof, error.what());  // other ranks may have found no fault
  }
  if (!proof) return std::nullopt;
  return own.key(open.exchange(kProof, *proof));
}

}  // namespace

TextExchange call_the_roll(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout, int world_rank,
                           TextExchange::Check meanwhile) {
  ignore_broken_pipes();
  SecretProof own(job_secret(), rank, world_rank);
  TextExchange open(store, rank, size, timeout);
  if (world_rank != rank) open.call_me(world_rank);
  open.meanwhile(meanwhile);
  open.announce_waits(true);
  const std::string mine = str(size);
  const std::string agreed = open.store().compareSet("world_size", "", mine);
  if (agreed != mine) {
    open.refuse(kRollCall, str("rank ", world_rank, " was started with a world of ", mine,
                               " ranks, the others with ", agreed, " (WORLD_SIZE)"));
  }
  if (open.store().add(str("rank/", rank), 1) != 1) {
    open.refuse(kRollCall,
                str("rank ", world_rank, " is there twice: two processes have the same RANK"));
  }
  const auto greetings = open.exchange(kRollCall, own.greeting());
  open.rename(names_in(greetings));
  const auto key = prove_secret(open, own, greetings);
  if (!key) return open;
  TextExchange hidden(c10::make_intrusive<SecretStore>(std::move(store), *key), rank, size, timeout,
                      open.world_ranks());
  hidden.meanwhile(std::move(meanwhile));
  hidden.announce_waits(true);
  return hidden;
}

c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store,
                                                 int restart_count) {
  return c10::make_intrusive<c10d::PrefixStore>(str("lockstep/", restart_count), std::move(store));
}

OwnAddress find_own_address(TextExchange& exchange, const std::string& meeting_host,
                            std::uint16_t port, bool several_hosts,
                            std::chrono::milliseconds timeout) {
  OwnAddress own;
  std::string contact;
  const auto look_up = [&] {
    contact = contact_address(meeting_host, several_hosts);
    const bool is_unknown = several_hosts && is_loopback(contact) && !is_loopback(meeting_host);
    if (is_unknown) contact.clear();
    own.address = is_unknown ? "" : local_address_towards(contact, port);
  };
  try {
    retry_look_up(timeout, look_up);
  } catch (const CommError& error) {
    if (!several_hosts) throw;
    exchange.refuse(kContacts, error.what());  // other ranks may have found no fault
  }
  if (!several_hosts) return own;
  return agree_on_address(exchange, own.address, contact);
}

OwnAddress agree_on_address(TextExchange& exchange, const std::string& known,
                            const std::string& contact) {
  OwnAddress own{.address = known};
  const std::vector<std::string> contacts = exchange.exchange(kContacts, contact);
  if (own.address.empty()) {
    const auto place = std::ranges::find_if(
        contacts, [](const std::string& each) { return !each.empty() && is_own_address(each); });
    if (place != contacts.end()) own.address = *place;
  }
  if (std::ranges::find(contacts, "") == contacts.end()) return own;
  const std::vector<std::string> addresses = exchange.exchange(kAddresses, own.address);
  if (std::ranges::find(addresses, "") != addresses.end()) {
    own.problem =
        "the name of rank 0's host is a loopback address on that host, which has no address at "
        "which the other hosts look for it; set MASTER_ADDR to the address at which the other "
        "hosts reach it";
  }
  return own;
}

TextExchange rendezvous(const WorkerEnvironment& environment, std::chrono::milliseconds timeout,
                        std::chrono::milliseconds host_timeout) {
  ignore_broken_pipes();
  const MeetingPlace place = look_up_meeting_place(environment, timeout);
  require_secret(environment, place);
  try {
    auto ours = store_of_attempt(connect_store(environment, place.address, timeout, host_timeout),
                                 environment.restart_count);
    TextExchange exchange = call_the_roll(std::move(ours), environment.rank, environment.world_size,
                                          timeout, environment.rank);
    if (environment.listen_fd && environment.rank == 0) close(*environment.listen_fd);
    return exchange;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, " lost the store at ",
                        host_and_port(environment.master_addr, environment.master_port),
                        " (did rank 0 end?): ", first_line(error)));
  }
}

}  // namespace lockstep::comm
