#include <lockstep/comm/process_group.h>

#include <signal.h>

#include <atomic>
#include <csignal>
#include <set>
#include <sstream>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/shm/handshake.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/rendezvous.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>

namespace lockstep {

class ProcessGroup::Impl {
 public:
  Impl(WorkerEnvironment environment, std::optional<TextExchange> exchange,
       std::shared_ptr<Backend> backend, std::chrono::milliseconds timeout)
      : environment(std::move(environment)),
        exchange(std::move(exchange)),
        backend(std::move(backend)),
        timeout(timeout) {}

  const WorkerEnvironment environment;
  // Declared before the backend: rank 0's store ends after the backend that may still ask it.
  std::optional<TextExchange> exchange;  // nothing in a group of one
  const std::shared_ptr<Backend> backend;
  const std::chrono::milliseconds timeout;
  std::uint64_t exchanges = 0;  // numbers the topics of all_gather_text
};

int ProcessGroup::rank() const { return impl_->environment.rank; }
int ProcessGroup::size() const { return impl_->environment.world_size; }
int ProcessGroup::local_rank() const { return impl_->environment.local_rank; }
int ProcessGroup::local_size() const { return impl_->environment.local_world_size; }
const std::string& ProcessGroup::backend() const { return impl_->backend->name(); }
std::chrono::milliseconds ProcessGroup::timeout() const { return impl_->timeout; }

void ProcessGroup::all_reduce(torch::Tensor tensor, ReduceOp op) {
  async_all_reduce(std::move(tensor), op)->wait();
}

std::shared_ptr<Work> ProcessGroup::async_all_reduce(torch::Tensor tensor, ReduceOp op) {
  return impl_->backend->all_reduce(std::move(tensor), op);
}

void ProcessGroup::broadcast(torch::Tensor tensor, int root) {
  async_broadcast(std::move(tensor), root)->wait();
}

std::shared_ptr<Work> ProcessGroup::async_broadcast(torch::Tensor tensor, int root) {
  if (root < 0 || root >= size()) {
    throw ConfigError(str("broadcast: root must be from 0 to ", size() - 1, ", got ", root));
  }
  return impl_->backend->broadcast(std::move(tensor), root);
}

void ProcessGroup::barrier() { impl_->backend->barrier()->wait(); }

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) {
  if (size() == 1) return {text};
  return impl_->exchange->exchange(lockstep::str("all_gather_text ", impl_->exchanges++), text,
                                   [&] { impl_->backend->check(); });
}

torch::Tensor ProcessGroup::allocate(at::IntArrayRef shape, torch::ScalarType dtype) {
  return impl_->backend->allocate(shape, dtype);
}

void ProcessGroup::abort(const std::string& reason) { impl_->backend->abort(reason); }

namespace {

// Writing to the connection of a dead peer raises SIGPIPE, whose default is to end the process without
// a word; ignored, the write fails and becomes a CommError. Python does the same at its start.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

// What a rank wants and has. All ranks see all profiles and so decide alike.
struct Profile {
  std::string backend;
  std::string device;  // "cpu", "cuda"
  std::string gpu;     // which one in the world; empty without NCCL

  std::string to_text() const { return lockstep::str(backend, '\n', device, '\n', gpu); }
  static Profile from_text(const std::string& text) {
    Profile profile;
    std::istringstream in(text);
    std::getline(in, profile.backend);
    std::getline(in, profile.device);
    std::getline(in, profile.gpu);
    return profile;
  }
};

std::vector<Profile> exchange_profiles(TextExchange& exchange, const ProcessGroupOptions& options) {
  const Profile mine{options.backend, options.device.is_cuda() ? "cuda" : "cpu",
                     options.device.is_cuda() ? nccl::device_identity(options.device) : ""};
  std::vector<Profile> profiles;
  for (const auto& text : exchange.exchange("choice of the backend", mine.to_text())) {
    profiles.push_back(Profile::from_text(text));
  }
  const Profile& first = profiles[0];
  for (std::size_t rank = 1; rank < profiles.size(); ++rank) {
    const Profile& other = profiles[rank];
    if (other.backend != first.backend || other.device != first.device) {
      throw ConfigError(lockstep::str("ranks want different things: rank 0 backend ", first.backend,
                                      " on ", first.device, ", rank ", rank, " backend ",
                                      other.backend, " on ", other.device));
    }
  }
  return profiles;
}

// NCCL refuses two ranks on one GPU.
bool each_has_a_gpu(const std::vector<Profile>& profiles) {
  std::set<std::string> gpus;
  for (const Profile& profile : profiles) {
    if (profile.gpu.empty() || !gpus.insert(profile.gpu).second) return false;
  }
  return true;
}

std::shared_ptr<Backend> choose_backend(Meeting& meeting, const WorkerEnvironment& environment,
                                        const ProcessGroupOptions& options) {
  TextExchange& exchange = meeting.exchange;
  const std::vector<Profile> profiles = exchange_profiles(exchange, options);
  const std::string& wanted = options.backend;
  if (wanted == "nccl" || (wanted == "auto" && each_has_a_gpu(profiles))) {
    return nccl::connect(exchange.store_pointer(), environment, options.device, options.timeout);
  }
  if (wanted == "shm" || (wanted == "auto" && options.device.is_cpu())) {
    std::string why_not;
    if (auto engine = shm::shake_hands(exchange, why_not)) {
      return shm::make(std::move(engine), options.timeout);
    }
    if (wanted == "shm") {
      throw CommError(lockstep::str("backend shm needs all ranks on one host, by one user; ", why_not,
                                    "; choose gloo"));
    }
    log_info("shared memory cannot be used (", why_not, "), using Gloo");
  }
  return gloo::connect(exchange.store_pointer(), environment, meeting.own_address, options.device,
                       options.timeout);
}

// A process has one environment, and one place in it.
void claim_environment() {
  static std::atomic<bool> claimed = false;
  if (claimed.exchange(true)) {
    throw ConfigError(
        "init_process_group: this process has joined its group already; keep a copy of that "
        "ProcessGroup, copies share it");
  }
}

}  // namespace

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  const OptionCheck check("init_process_group");
  check.one_of("backend", options.backend, {"auto", "shm", "gloo", "nccl"});
  check.positive("timeout (ms)", static_cast<double>(options.timeout.count()));
  if (options.backend == "nccl" && !nccl::is_available()) {
    nccl::connect(nullptr, {}, options.device, options.timeout);  // throws: not in this build
  }
  if (options.device.is_cuda() && !options.device.has_index()) {
    throw ConfigError("init_process_group: device must name a GPU, as in cuda:0");
  }
  const auto found = options.environment ? options.environment : worker_environment();
  const WorkerEnvironment environment = found.value_or(WorkerEnvironment{});
  if (environment.world_size == 1) {
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(
        environment, std::nullopt, single::make(options.device), options.timeout));
  }
  if (!options.environment) claim_environment();
  ignore_broken_pipes();
  Meeting meeting = rendezvous(environment, options.timeout);
  try {
    auto backend = choose_backend(meeting, environment, options);
    // Rank 0 may leave at once, and its store with it: not before all are connected.
    meeting.exchange.exchange("end of the rendezvous", "", [&] { backend->check(); });
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(
        environment, std::move(meeting.exchange), std::move(backend), options.timeout));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", environment.rank, " could not connect to its peers: ",
                                  first_line(error)));
  }
}

bool nccl_available() { return nccl::is_available(); }

}  // namespace lockstep
