#include <lockstep/comm/choose_backend.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <utility>

#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/shm/handshake.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

StorePointer part_of(const Membership& membership, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, membership.exchange->store_pointer());
}

WorkerEnvironment place_among(int rank, int size) { return {.rank = rank, .world_size = size}; }

// Tensors of GPUs come to these transports through host memory.
std::shared_ptr<Backend> connect_gloo(const Membership& membership, const std::string& prefix, int rank,
                                      const std::vector<int>& world_ranks) {
  return gloo::connect(part_of(membership, prefix), place_among(rank, static_cast<int>(world_ranks.size())),
                       membership.own_address, torch::kCPU, membership.options.timeout, world_ranks);
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
  return nccl::connect(part_of(membership, "nccl"), place_among(membership.rank, membership.size),
                       membership.options.device, membership.options.timeout, membership.world_ranks);
}

bool wants_hierarchy(const std::string& wanted, const std::vector<std::vector<int>>& hosts, int size) {
  if (wanted == "hierarchical" && hosts.size() == 1) {
    throw ConfigError("backend hierarchical is for several hosts, all ranks are on one; choose shm");
  }
  const bool some_together = static_cast<int>(hosts.size()) < size;
  return hosts.size() > 1 && (wanted == "hierarchical" || (wanted == "auto" && some_together));
}

}  // namespace

std::shared_ptr<Backend> choose_backend(Membership& membership) {
  const std::string& wanted = membership.options.backend;
  if (wanted == "nccl" || (wanted == "auto" && each_has_a_gpu(membership.profiles))) {
    return connect_nccl(membership);
  }
  const auto hosts = ranks_by_host(membership.profiles);
  std::string why_not;
  if (wanted == "shm" || (wanted == "auto" && hosts.size() == 1)) {
    if (auto backend = try_shared_memory(membership, *membership.exchange, why_not)) return backend;
    if (wanted == "shm") {
      throw CommError(lockstep::str("backend shm needs all ranks on one host, by one user; ", why_not,
                                    "; choose gloo"));
    }
    log_info("shared memory cannot be used (", why_not, "), using Gloo");
  }
  return connect_gloo(membership, "gloo", membership.rank, membership.world_ranks);
}

}  // namespace lockstep
