#include <lockstep/comm/process_group.h>

#include <signal.h>

#include <csignal>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/network.h>
#include <lockstep/comm/rendezvous.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>

namespace lockstep {

class ProcessGroup::Impl {
 public:
  Impl(WorkerEnvironment environment, c10::intrusive_ptr<c10d::Store> store,
       std::shared_ptr<Backend> backend, std::chrono::milliseconds timeout)
      : environment(std::move(environment)),
        store(std::move(store)),
        backend(std::move(backend)),
        timeout(timeout) {}

  const WorkerEnvironment environment;
  // Declared before the backend: rank 0's store ends after the backend that may still ask it.
  const c10::intrusive_ptr<c10d::Store> store;  // null in a group of one
  const std::shared_ptr<Backend> backend;
  const std::chrono::milliseconds timeout;
  std::uint64_t exchanges = 0;  // numbers the keys of all_gather_text
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
  const std::string prefix = str("text/", impl_->exchanges++, "/");
  std::vector<std::string> texts;
  try {
    impl_->store->set(str(prefix, rank()), text);
    for (int peer = 0; peer < size(); ++peer) {
      texts.push_back(impl_->store->get_to_str(str(prefix, peer)));
    }
    // Rank 0 serves the store; it must not leave while others still read.
    impl_->store->set(str(prefix, "read/", rank()), "");
    for (int peer = 1; peer < size() && rank() == 0; ++peer) {
      impl_->store->get(str(prefix, "read/", peer));
    }
  } catch (const std::exception& error) {
    throw CommError(str("rank ", rank(), ": all_gather_text: no answer from rank ", texts.size(), ": ",
                        first_line(error)));
  }
  return texts;
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

bool owns_a_gpu(const WorkerEnvironment& environment, torch::Device device) {
  return device.is_cuda() &&
         environment.local_world_size <= static_cast<int>(torch::cuda::device_count());
}

std::shared_ptr<Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                      const WorkerEnvironment& environment,
                                      const ProcessGroupOptions& options) {
  const std::string interface =
      local_address_towards(environment.master_addr, environment.master_port);
  return gloo::connect(store, environment, interface, options.device, options.timeout);
}

std::shared_ptr<Backend> choose_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                        const WorkerEnvironment& environment,
                                        const ProcessGroupOptions& options) {
  const std::string& wanted = options.backend;
  if (wanted == "nccl" ||
      (wanted == "auto" && nccl::is_available() && owns_a_gpu(environment, options.device))) {
    return nccl::connect(store, environment, options.device, options.timeout);
  }
  const bool shm_possible = wanted == "shm" || (wanted == "auto" && options.device.is_cpu());
  if (shm_possible) {
    std::string why_not;
    if (auto backend = shm::try_connect(*store, environment, options.timeout, why_not)) {
      return backend;
    }
    if (wanted == "shm") {
      throw CommError(str("backend shm needs all ranks on one host, by one user; ", why_not,
                          "; choose gloo"));
    }
    log_info("shared memory cannot be used (", why_not, "), using Gloo");
  }
  return connect_gloo(store, environment, options);
}

// Rank 0 may leave the group at once, and its store with it: not before all have read what they need.
void await_readers(c10d::Store& store, const WorkerEnvironment& environment) {
  if (environment.rank != 0) return store.set(lockstep::str("ready/", environment.rank), std::string("1"));
  for (int rank = 1; rank < environment.world_size; ++rank) store.get(lockstep::str("ready/", rank));
}

}  // namespace

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  const OptionCheck check("init_process_group");
  check.one_of("backend", options.backend, {"auto", "shm", "gloo", "nccl"});
  check.positive("timeout (ms)", static_cast<double>(options.timeout.count()));
  if (options.backend == "nccl" && !nccl::is_available()) {
    nccl::connect(nullptr, {}, options.device, options.timeout);  // throws: not in this build
  }
  const auto found = options.environment ? options.environment : worker_environment();
  const WorkerEnvironment environment = found.value_or(WorkerEnvironment{});
  if (environment.world_size == 1) {
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(environment, nullptr, single::make(),
                                                             options.timeout));
  }
  ignore_broken_pipes();
  auto store = rendezvous(environment, options.timeout);
  try {
    auto backend = choose_backend(store, environment, options);
    await_readers(*store, environment);
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(environment, std::move(store),
                                                             std::move(backend), options.timeout));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, " could not connect to its peers: ",
                        first_line(error)));
  }
}

bool nccl_available() { return nccl::is_available(); }

}  // namespace lockstep
