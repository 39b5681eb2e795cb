#include <lockstep/comm/rendezvous.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/comm/network.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

std::string joined_key(int rank) { return str("joined/", rank); }

c10::intrusive_ptr<c10d::Store> connect_store(const WorkerEnvironment& environment,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.timeout = timeout;
  options.waitWorkers = false;  // the roll call below waits, and says for whom
  options.isServer = environment.rank == 0 && !environment.agent_store;
  if (options.isServer) {
    // Without a descriptor TCPStore would listen on every interface of the machine.
    options.masterListenFd = environment.listen_fd
                                 ? *environment.listen_fd
                                 : listen_on(environment.master_addr, environment.master_port);
    options.port = bound_port(*options.masterListenFd);
  } else {
    // TCPStore retries once a second and with warnings on the terminal; ours is quick and silent.
    wait_for_listener(environment.master_addr, environment.master_port, timeout);
  }
  return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
}

std::string missing_ranks(c10d::Store& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({joined_key(rank)})) missing.push_back(rank);
  }
  return str(missing.size() == 1 ? "rank " : "ranks ", join(missing));
}

void call_the_roll(c10d::Store& store, const WorkerEnvironment& environment,
                   std::chrono::milliseconds timeout) {
  const int rank = environment.rank;
  const int size = environment.world_size;
  const std::string mine = str(size);
  const std::string agreed = store.compareSet("world_size", "", mine);
  if (agreed != mine) {
    throw CommError(str("rank ", rank, " was started with a world of ", size,
                        " ranks, the others with ", agreed, " (WORLD_SIZE)"));
  }
  if (store.add(joined_key(rank), 1) != 1) {
    throw CommError(str("rank ", rank, " is there twice: two processes have the same RANK"));
  }
  std::vector<std::string> keys;
  for (int each = 0; each < size; ++each) keys.push_back(joined_key(each));
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    throw TimeoutError(str("rank ", rank, " waited ", static_cast<double>(timeout.count()) / 1e3,
                           " s for ", missing_ranks(store, size), " of ", size, " to join"));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> rendezvous(const WorkerEnvironment& environment,
                                           std::chrono::milliseconds timeout) {
  try {
    auto store = connect_store(environment, timeout);
    // Attempts of an elastic job, and what else uses the launcher's store, must not meet our keys.
    auto ours = c10::make_intrusive<c10d::PrefixStore>(
        str("lockstep/", environment.restart_count), std::move(store));
    call_the_roll(*ours, environment, timeout);
    return ours;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(str("rank ", environment.rank, " lost the store at ", environment.master_addr, ":",
                        environment.master_port, " (rank 0 ended?): ", first_line(error)));
  }
}

}  // namespace lockstep
