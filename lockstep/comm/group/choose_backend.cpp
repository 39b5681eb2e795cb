#include <lockstep/comm/group/choose_backend.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <utility>

#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/backends/hierarchical/hierarchical.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/shm/handshake.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

StorePointer part_of(const Membership& membership, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, membership.exchange->store_pointer());
}

WorkerEnvironment place_among(const Membership& membership, int rank, std::size_t size) {
  return {
      .rank = rank, .world_size = static_cast<int>(size), .agent_store = membership.foreign_store};
}

// What a rank does while it waits for its peers in a library. It gives up when another rank has
// failed.
c10d_adapter::Meanwhile meanwhile_of(const Membership& membership) {
  return {.progress = membership.progress,
          .check = [&membership, refusal_check = membership.exchange->refusal_check()] {
            if (membership.check) membership.check();
            refusal_check();
          }};
}

// Tensors on a GPU reach these transports through host memory.
std::shared_ptr<Backend> connect_gloo(const Membership& membership, const std::string& prefix,
                                      int rank, const std::vector<int>& world_ranks) {
  if (!membership.address_problem.empty()) {
    throw ConfigError("backend gloo: " + membership.address_problem);
  }
  return gloo::connect(part_of(membership, prefix),
                       place_among(membership, rank, world_ranks.size()), membership.own_address,
                       torch::kCPU, membership.options.timeout, world_ranks,
                       meanwhile_of(membership), host_timeout(membership.options));
}

std::shared_ptr<Backend> try_shared_memory(const Membership& membership, TextExchange& exchange,
                                           std::string& why_not) {
  shm::EngineOptions options;
  options.world_ranks = exchange.world_ranks();
  options.progress = membership.progress;
  auto engine = shm::shake_hands(exchange, std::move(options), why_not);
  return engine ? shm::make(std::move(engine), membership.options.timeout) : nullptr;
}

std::shared_ptr<Backend> connect_nccl(const Membership& membership) {
  const auto& world_ranks = membership.world_ranks;
  return nccl::connect(part_of(membership, "nccl"),
                       place_among(membership, membership.rank, world_ranks.size()),
                       membership.options.device, membership.options.timeout, world_ranks,
                       host_timeout(membership.options),
                       {.high_priority = membership.options.high_priority_streams,
                        .parent = membership.parent,
                        .color = membership.color},
                       meanwhile_of(membership));
}

// Whether no rank reports an objection under `topic`. Otherwise `why_not` is the first objection,
// on all ranks.
bool all_can(Membership& membership, const std::string& topic, std::string& why_not) {
  for (const auto& reason : membership.exchange->exchange(topic, why_not)) {
    if (reason.empty()) continue;
    why_not = reason;
    return false;
  }
  return true;
}

// The shared-memory backend of this host's ranks. Null on all ranks of all hosts if any host fails.
std::shared_ptr<Backend> connect_host(Membership& membership, const std::vector<int>& members,
                                      int host, int local_rank, std::string& why_not) {
  std::shared_ptr<Backend> local;
  if (members.size() == 1) {
    local = single::make(torch::kCPU);
  } else {
    TextExchange exchange(part_of(membership, lockstep::str("host/", host)), local_rank,
                          static_cast<int>(members.size()), membership.options.timeout,
                          membership.named(members));
    exchange.meanwhile(membership.exchange->meanwhile());
    local = exchange.attempt(kEndOfRendezvous,
                             [&] { return try_shared_memory(membership, exchange, why_not); });
  }
  return all_can(membership, "shared memory inside the hosts", why_not) ? local : nullptr;
}

std::shared_ptr<Backend> try_hierarchy(Membership& membership,
                                       const std::vector<std::vector<int>>& hosts,
                                       std::string& why_not) {
  hierarchical::Parts parts{
      .rank = membership.rank,
      .locations = std::vector<hierarchical::RankLocation>(membership.peers.size()),
      .progress = membership.progress,
      .timeout = membership.options.timeout};
  std::vector<int> leaders;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    leaders.push_back(hosts[host][0]);
    for (std::size_t local = 0; local < hosts[host].size(); ++local) {
      parts.locations[static_cast<std::size_t>(hosts[host][local])] = {static_cast<int>(host),
                                                                       static_cast<int>(local)};
    }
  }
  const auto own = parts.locations[static_cast<std::size_t>(membership.rank)];
  parts.local = connect_host(membership, hosts[static_cast<std::size_t>(own.host)], own.host,
                             own.local_rank, why_not);
  if (!parts.local) return nullptr;
  if (own.local_rank == 0) {
    parts.leaders = connect_gloo(membership, "leaders", own.host, membership.named(leaders));
  }
  parts.flat = connect_gloo(membership, "gloo", membership.rank, membership.world_ranks);
  return hierarchical::make(std::move(parts));
}

bool wants_hierarchy(const std::string& wanted, const std::vector<std::vector<int>>& hosts,
                     int size) {
  if (wanted == "hierarchical" && hosts.size() == 1) {
    throw ConfigError(
        "backend hierarchical is for several hosts, all ranks are on one; choose shm");
  }
  const bool some_together = static_cast<int>(hosts.size()) < size;
  return hosts.size() > 1 && (wanted == "hierarchical" || (wanted == "auto" && some_together));
}

}  // namespace

bool becomes_nccl(const std::string& wanted, const std::vector<PeerInfo>& peers) {
  return wanted == "nccl" || (wanted == "auto" && peers.size() > 1 && each_has_a_gpu(peers));
}

std::shared_ptr<Backend> choose_backend(Membership& membership) {
  const std::string& wanted = membership.options.backend;
  if (becomes_nccl(wanted, membership.peers)) {
    return connect_nccl(membership);
  }
  const auto hosts = ranks_by_host(membership.peers);
  std::string why_not;
  if (wanted == "shm" || (wanted == "auto" && hosts.size() == 1)) {
    if (auto backend = try_shared_memory(membership, *membership.exchange, why_not)) return backend;
    if (wanted == "shm") {
      throw CommError(lockstep::str("backend shm needs all ranks on one host, by one user; ",
                                    why_not, "; choose gloo"));
    }
    log_info("shared memory cannot be used (", why_not, "), using Gloo");
  }
  if (wants_hierarchy(wanted, hosts, membership.size)) {
    if (auto backend = try_hierarchy(membership, hosts, why_not)) return backend;
    if (wanted == "hierarchical") {
      throw CommError(lockstep::str("backend hierarchical needs shared memory inside each host; ",
                                    why_not, "; choose gloo"));
    }
    log_info("shared memory inside the hosts cannot be used (", why_not,
             "), using Gloo between all ranks");
  }
  return connect_gloo(membership, "gloo", membership.rank, membership.world_ranks);
}

}  // namespace lockstep::comm
