#include <lockstep/comm/group/choose_backend.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <utility>

#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/backends/hierarchical/hierarchical.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/shm/handshake.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/backends/through_device/through_device.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

StorePointer part_of(const Membership& membership, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, membership.exchange->store_pointer());
}

WorkerEnvironment place_among(const Membership& membership, int rank, std::size_t size) {
  return {
      .rank = rank, .world_size = static_cast<int>(size), .agent_store = membership.foreign_store};
}

// Tensors on a GPU reach these transports through host memory.
std::shared_ptr<Backend> connect_gloo(const Membership& membership, const std::string& prefix,
                                      int rank, const std::vector<int>& world_ranks) {
  return gloo::connect(part_of(membership, prefix),
                       place_among(membership, rank, world_ranks.size()), membership.own_address,
                       torch::kCPU, membership.options.timeout, world_ranks,
                       {.progress = membership.progress, .check = membership.check},
                       host_timeout(membership.options));
}

std::shared_ptr<Backend> try_shared_memory(const Membership& membership, TextExchange& exchange,
                                           std::string& why_not) {
  shm::EngineOptions options;
  options.world_ranks = exchange.world_ranks();
  options.progress = membership.progress;
  auto engine = shm::shake_hands(exchange, std::move(options), why_not);
  return engine ? shm::make(std::move(engine), membership.options.timeout) : nullptr;
}

std::shared_ptr<Backend> connect_nccl(const Membership& membership, const std::string& prefix,
                                      int rank, const std::vector<int>& world_ranks,
                                      std::chrono::milliseconds timeout,
                                      std::shared_ptr<Backend> parent = nullptr) {
  return nccl::connect(part_of(membership, prefix),
                       place_among(membership, rank, world_ranks.size()), membership.options.device,
                       timeout, world_ranks, host_timeout(membership.options),
                       {.high_priority = membership.options.high_priority_streams,
                        .parent = std::move(parent),
                        .color = membership.color});
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
    local = try_shared_memory(membership, exchange, why_not);
  }
  return all_can(membership, "shared memory inside the hosts", why_not) ? local : nullptr;
}

// Decides from what every rank told its peers, so that all ranks make the same decision.
bool wants_nccl_between(const Membership& membership, const std::vector<int>& leaders) {
  std::vector<PeerInfo> theirs;
  for (const int leader : leaders) {
    theirs.push_back(membership.peers[static_cast<std::size_t>(leader)]);
  }
  const std::string& wanted = theirs[0].leaders;
  const bool possible = each_has_a_gpu(theirs);
  if (wanted == "nccl" && !possible) {
    throw ConfigError(lockstep::str(
        "leaders nccl (LOCKSTEP_LEADERS) needs, on the first rank of each host (ranks ",
        join(membership.named(leaders)),
        "), a build with NCCL and a device that is a GPU of its own; choose gloo"));
  }
  return possible && wanted != "gloo";
}

// A number for collectives that run before the numbered ones.
constexpr std::uint64_t kOutsideOfAll = ~std::uint64_t{0};

// NCCL connects, and blocks the caller, at its first collective. Running one here lets a failure be
// handled.
std::shared_ptr<Backend> try_nccl_between(const Membership& membership, int host,
                                          const std::vector<int>& world_ranks,
                                          std::string& why_not) {
  try {
    // LibTorch ends the process at NCCL's own deadline, so the hierarchy's deadline must come
    // first.
    const auto timeout = 2 * membership.options.timeout;
    auto leaders = through_device::make(
        connect_nccl(membership, "leaders over NCCL", host, world_ranks, timeout),
        {.device = membership.options.device, .rank = host, .timeout = membership.options.timeout});
    leaders->start({.description = {.kind = CallKind::kBarrier}, .number = kOutsideOfAll})->wait();
    return leaders;
  } catch (const std::exception& error) {
    why_not = first_line(error);
    return nullptr;
  }
}

// Null on ranks that are not leaders.
std::shared_ptr<Backend> connect_leaders(Membership& membership, const std::vector<int>& leaders,
                                         const hierarchical::RankLocation& own, bool over_nccl) {
  const auto world_ranks = membership.named(leaders);
  const bool leads = own.local_rank == 0;
  if (over_nccl) {
    std::string why_not;
    std::shared_ptr<Backend> backend;
    if (leads) backend = try_nccl_between(membership, own.host, world_ranks, why_not);
    if (all_can(membership, "NCCL between the hosts", why_not)) return backend;
    if (membership.peers[0].leaders == "nccl") {
      throw CommError(lockstep::str("leaders nccl (LOCKSTEP_LEADERS) cannot connect the hosts; ",
                                    why_not, "; choose gloo"));
    }
    log_info("NCCL cannot connect the hosts (", why_not, "), using Gloo between them");
  }
  return leads ? connect_gloo(membership, "leaders", own.host, world_ranks) : nullptr;
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
  const bool over_nccl = wants_nccl_between(membership, leaders);
  const auto own = parts.locations[static_cast<std::size_t>(membership.rank)];
  parts.local = connect_host(membership, hosts[static_cast<std::size_t>(own.host)], own.host,
                             own.local_rank, why_not);
  if (!parts.local) return nullptr;
  parts.leaders = connect_leaders(membership, leaders, own, over_nccl);
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
    return connect_nccl(membership, "nccl", membership.rank, membership.world_ranks,
                        membership.options.timeout, membership.parent);
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

}  // namespace lockstep
