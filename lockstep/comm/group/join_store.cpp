#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <map>
#include <mutex>
#include <utility>

#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/rendezvous/quiet_store.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::comm {
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
OwnAddress address_towards(const c10::intrusive_ptr<c10d::Store>& store, TextExchange& exchange,
                           bool several_hosts, std::chrono::milliseconds timeout) {
  const c10d::Store* served = store.get();
  c10::intrusive_ptr<c10d::Store> inner;
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    inner = prefixed->getUnderlyingNonPrefixStore();
    served = inner.get();
  }
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(served)) {
    return find_own_address(exchange, tcp->getHost(), tcp->getPort(), several_hosts, timeout);
  }
  if (!several_hosts) return {.address = "127.0.0.1"};
  throw ConfigError(
      "join_store: ranks on several hosts need a TCPStore, which tells the way between them");
}

// `world_rank` and `world_size` are this rank's in the first group.
Membership membership_in(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                         const ProcessGroupOptions& options, int world_rank, int world_size) {
  const Shared shared = shared_by_rank().enter(world_rank, world_size);
  const auto own = [&] {
    return own_peer_info(options, world_rank,
                         lockstep::str("store/", world_rank, '.', shared.groups));
  };
  std::vector<PeerInfo> peers;
  std::optional<TextExchange> exchange;
  OwnAddress own_address;
  if (size == 1) {
    peers = {own()};
  } else {
    // LibTorch's store also prints the errors that it throws.
    exchange =
        call_the_roll(c10::make_intrusive<QuietStore>(store), rank, size, options.timeout,
                      world_rank, [progress = shared.progress] { progress->advance(nullptr); });
    peers = exchange_peer_infos(*exchange, exchange->attempt(kChoiceOfBackend, own));
    own_address =
        address_towards(store, *exchange, ranks_by_host(peers).size() > 1, options.timeout);
  }
  tell_of_shared_devices(peers, rank);
  std::vector<int> world_ranks;
  for (const PeerInfo& peer : peers) world_ranks.push_back(peer.world_rank);
  if (exchange) exchange->rename(world_ranks);
  ProcessGroupOptions of_job = options;
  of_job.flight_recorder_directory =
      flight_recorder_directory(options.flight_recorder_directory,
                                shared_by_rank().name_job(world_rank, world_size, job_name(peers)));
  const LocalPlace local = local_place(peers, rank);
  return {.name = peers[0].label,
          .rank = rank,
          .size = size,
          .local_rank = local.rank,
          .local_size = local.size,
          .world_ranks = std::move(world_ranks),
          .peers = peers,
          .exchange = std::move(exchange),
          .own_address = std::move(own_address.address),
          .address_problem = std::move(own_address.problem),
          .foreign_store = true,  // this cannot be known, so assume the worst
          .options = std::move(of_job),
          .progress = shared.progress,
          .recorder = shared.recorder};
}

}  // namespace

ProcessGroup join_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                        const ProcessGroupOptions& options) {
  check_options(options);
  const OptionCheck check("join_store");
  check.at_least("size", size, 1);
  check.in_range("rank", rank, 0, size - 1);
  const int world_rank = options.environment ? options.environment->rank : rank;
  const int world_size = options.environment ? options.environment->world_size : size;
  if (options.environment) {
    store = store_of_attempt(std::move(store), options.environment->restart_count);
  }
  return connect(membership_in(store, rank, size, options, world_rank, world_size));
}

}  // namespace lockstep::comm
