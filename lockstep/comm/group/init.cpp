#include <atomic>
#include <numeric>
#include <optional>
#include <utility>

#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/core/error.h>
#include <lockstep/core/open_files.h>

namespace lockstep {
namespace {

// A group of two ranks needs at most 24 open files per rank. Each further rank costs rank 0's store
// and Gloo one connection each.
constexpr int kOpenFiles = 32;
constexpr int kOpenFilesPerRank = 2;

// A process has one environment and one place in it. After a failure it may join again, unless a
// launcher's store still holds the keys of the failed attempt.
class Claim {
 public:
  explicit Claim(const WorkerEnvironment& environment) : lasts_(environment.agent_store) {
    State free = State::kFree;
    if (state().compare_exchange_strong(free, State::kJoined)) return;
    if (free == State::kFailed) {
      throw ConfigError(
          "init_process_group: this process has failed to join its group, and the launcher's store "
          "keeps what it left there; end all ranks and let the launcher start them again");
    }
    throw ConfigError(
        "init_process_group: this process has joined its group already; keep a copy of that "
        "ProcessGroup, copies share it");
  }
  ~Claim() {
    if (!joined_) state() = lasts_ ? State::kFailed : State::kFree;
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  void joined() { joined_ = true; }

 private:
  enum class State { kFree, kJoined, kFailed };
  static std::atomic<State>& state() {
    static std::atomic<State> state = State::kFree;
    return state;
  }

  const bool lasts_;
  bool joined_ = false;
};

// Meets the other ranks, unless there are none.
comm::Membership membership_of(const WorkerEnvironment& environment,
                               const ProcessGroupOptions& options) {
  const int size = environment.world_size;
  const auto own = [&] { return comm::own_peer_info(options, environment.rank, "world"); };
  std::vector<comm::PeerInfo> peers;
  std::optional<comm::TextExchange> exchange;
  comm::OwnAddress own_address;
  if (size <= 1) {
    peers = {own()};
  } else {
    require_open_files(kOpenFiles + kOpenFilesPerRank * size,
                       lockstep::str("init_process_group: a group of ", size, " ranks"));
    exchange = comm::rendezvous(environment, options.timeout, comm::host_timeout(options));
    peers = comm::exchange_peer_infos(*exchange, exchange->attempt(comm::kChoiceOfBackend, own));
    own_address =
        comm::find_own_address(*exchange, environment.master_addr, environment.master_port,
                               comm::ranks_by_host(peers).size() > 1, options.timeout);
    comm::tell_of_shared_devices(peers, environment.rank);
  }
  std::vector<int> world_ranks(static_cast<std::size_t>(size));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  ProcessGroupOptions of_job = options;
  of_job.flight_recorder_directory =
      comm::flight_recorder_directory(options.flight_recorder_directory, comm::job_name(peers));
  return {.name = peers[0].label,
          .rank = environment.rank,
          .size = size,
          .local_rank = environment.local_rank,
          .local_size = environment.local_world_size,
          .world_ranks = std::move(world_ranks),
          .peers = std::move(peers),
          .exchange = std::move(exchange),
          .own_address = std::move(own_address.address),
          .address_problem = std::move(own_address.problem),
          .foreign_store = environment.agent_store,
          .options = std::move(of_job),
          .progress = std::make_shared<comm::Progress>(),
          .recorder = std::make_shared<comm::FlightRecorder>(environment.rank, size)};
}

}  // namespace

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  comm::check_options(options);
  const auto found = options.environment ? options.environment : worker_environment();
  const WorkerEnvironment environment = found.value_or(WorkerEnvironment{});
  std::optional<Claim> claim;
  if (!options.environment) claim.emplace(environment);
  ProcessGroup group = comm::connect(membership_of(environment, options));
  if (claim) claim->joined();
  return group;
}

}  // namespace lockstep
