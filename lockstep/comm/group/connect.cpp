#include <lockstep/comm/group/connect.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/comm/diagnostics/fingerprints.h>
#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/choose_backend.h>
#include <lockstep/comm/group/device_copies.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/comm/rendezvous/quiet_store.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/core/process_owned.h>

namespace lockstep {
namespace {

// State shared by the groups that a process joins separately: while a thread waits for one, the
// others must make progress. Keyed by rank, because tests run ranks as threads.
struct Shared {
  std::shared_ptr<Progress> progress;
  std::shared_ptr<FlightRecorder> recorder;
  std::uint64_t groups = 0;
  std::string job;  ///< name given by the first group, which contains all ranks
};

class SharedByRank {
 public:
  Shared enter(int world_rank, int world_size) {
    const std::scoped_lock lock(mutex_);
    Shared& shared = all_[{world_rank, world_size}];
    if (!shared.progress) {
      shared.progress = std::make_shared<Progress>();
      shared.recorder = std::make_shared<FlightRecorder>(world_rank, world_size);
    }
    ++shared.groups;
    return shared;
  }

  std::string name_job(int world_rank, int world_size, const std::string& proposal) {
    const std::scoped_lock lock(mutex_);
    std::string& job = all_[{world_rank, world_size}].job;
    if (job.empty()) job = proposal;
    return job;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Shared> all_;
};

SharedByRank& shared_by_rank() {
  static SharedByRank all;
  return all;
}

// This host's address for peers that can reach the store.
std::string address_towards(const c10::intrusive_ptr<c10d::Store>& store, bool several_hosts) {
  const c10d::Store* served = store.get();
  c10::intrusive_ptr<c10d::Store> inner;
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    inner = prefixed->getUnderlyingNonPrefixStore();
    served = inner.get();
  }
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(served)) {
    return address_for_peers(tcp->getHost(), tcp->getPort(), several_hosts);
  }
  if (!several_hosts) return "127.0.0.1";
  throw ConfigError(
      "join_store: ranks on several hosts need a TCPStore, which tells the way between them");
}

std::shared_ptr<Backend> connect_members(Membership& membership) {
  try {
    // The first group of a process has no other group to advance while it waits.
    const auto progress = membership.progress;
    if (membership.check || (progress && progress->has_members())) {
      membership.exchange->meanwhile([progress, check = membership.check] {
        if (progress) progress->advance(nullptr);
        if (check) check();
      });
    }
    auto backend = choose_backend(membership);
    // Rank 0 may leave right after this, and its store with it, so it waits until all ranks are
    // connected.
    membership.exchange->exchange("end of the rendezvous", "", [&] { backend->check(); });
    membership.exchange->meanwhile({});
    membership.exchange->announce_waits(false);
    return backend;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", membership.world_rank(),
                                  " could not connect to its peers: ", first_line(error)));
  }
}

}  // namespace

std::chrono::milliseconds host_timeout(const ProcessGroupOptions& options) {
  constexpr std::int64_t kDefaultSeconds = 10;
  constexpr std::int64_t kMostSeconds = 1'000'000;
  if (options.host_timeout) {
    if (options.host_timeout->count() < 0) throw ConfigError("host_timeout must not be negative");
    return std::min<std::chrono::milliseconds>(*options.host_timeout,
                                               std::chrono::seconds(kMostSeconds));
  }
  const auto seconds = environment_integer("LOCKSTEP_HOST_TIMEOUT").value_or(kDefaultSeconds);
  if (seconds >= 0 && seconds <= kMostSeconds) return std::chrono::seconds(seconds);
  throw ConfigError(lockstep::str("LOCKSTEP_HOST_TIMEOUT must be from 0 to ", kMostSeconds,
                                  " seconds, got ", seconds));
}

void check_options(const ProcessGroupOptions& options, const std::string& call) {
  const OptionCheck check(call);
  check.one_of("backend", options.backend, backend_names());
  check.positive("timeout (ms)", static_cast<double>(options.timeout.count()));
  // Read when the group is connected: an invalid value is reported before ranks wait for each
  // other.
  environment_flag("LOCKSTEP_NAN_CHECK");
  host_timeout(options);
  fingerprints_wanted();
  if (options.backend == "nccl" && !nccl::is_available()) {
    nccl::connect(nullptr, {}, options.device, options.timeout);  // throws: not in this build
  }
  if (options.device.is_cuda() && !options.device.has_index()) {
    throw ConfigError(call + ": device must name a GPU, as in cuda:0");
  }
}

void tell_of_shared_devices(const std::vector<PeerInfo>& peers, int rank) {
  const std::string shared = shared_devices(peers);
  if (rank != 0 || shared.empty()) return;
  if (peers[0].backend == "nccl") {
    log_warning(shared, ", which NCCL before 2.30 refuses; choose backend auto or shm");
    return;
  }
  log_warning(shared,
              ", and their tensors are reduced in host memory: NCCL, which is faster, needs "
              "a GPU for each rank");
}

ProcessGroup connect(Membership membership) {
  if (membership.size == 1 && !becomes_nccl(membership.options.backend, membership.peers)) {
    auto backend = single::make(membership.options.device);
    membership.check = nullptr;
    return ProcessGroup(
        make_process_owned<ProcessGroup::Impl>(std::move(membership), std::move(backend)));
  }
  if (!membership.exchange) {  // NCCL alone: no other rank reads its store
    membership.exchange.emplace(c10::make_intrusive<c10d::HashStore>(), membership.rank,
                                membership.size, membership.options.timeout,
                                membership.world_ranks);
  }
  auto backend = connect_members(membership);
  membership.check = nullptr;  // also releases what it captures
  membership.parent = nullptr;
  return ProcessGroup(
      make_process_owned<ProcessGroup::Impl>(std::move(membership), std::move(backend)));
}

ProcessGroup join_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                        const ProcessGroupOptions& options) {
  check_options(options);
  set_current_device(options.device);
  const OptionCheck check("join_store");
  check.at_least("size", size, 1);
  check.in_range("rank", rank, 0, size - 1);
  const int world_rank = options.environment ? options.environment->rank : rank;
  const int world_size = options.environment ? options.environment->world_size : size;
  if (options.environment) {
    store = store_of_attempt(std::move(store), options.environment->restart_count);
  }
  const Shared shared = shared_by_rank().enter(world_rank, world_size);
  Membership membership;
  membership.rank = rank;
  membership.size = size;
  membership.foreign_store = true;  // this cannot be known, so assume the worst
  membership.options = options;
  membership.progress = shared.progress;
  membership.recorder = shared.recorder;
  const PeerInfo own =
      own_peer_info(options, world_rank, lockstep::str("store/", world_rank, '.', shared.groups));
  membership.peers = {own};
  if (size > 1) {
    // LibTorch's store also prints the errors that it throws.
    TextExchange exchange =
        call_the_roll(c10::make_intrusive<QuietStore>(store), rank, size, options.timeout,
                      world_rank, [progress = shared.progress] { progress->advance(nullptr); });
    membership.peers = exchange_peer_infos(exchange, own);
    membership.own_address = address_towards(store, ranks_by_host(membership.peers).size() > 1);
    membership.exchange = std::move(exchange);
  }
  tell_of_shared_devices(membership.peers, rank);
  for (const auto& peer : membership.peers) membership.world_ranks.push_back(peer.world_rank);
  if (membership.exchange) membership.exchange->rename(membership.world_ranks);
  membership.name = membership.peers[0].label;
  membership.options.flight_recorder_directory = flight_recorder_directory(
      options.flight_recorder_directory,
      shared_by_rank().name_job(world_rank, world_size, job_name(membership.peers)));
  membership.find_local_place();
  return connect(std::move(membership));
}

}  // namespace lockstep
