#include <lockstep/comm/group/connect.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <utility>

#include <lockstep/comm/backends/nccl/gpu_sharing.h>
#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/comm/diagnostics/fingerprints.h>
#include <lockstep/comm/group/choose_backend.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/core/process_owned.h>

namespace lockstep::comm {
namespace {

// Calls choose_backend(). If it fails on a rank, it fails on all.
std::shared_ptr<Backend> choose_together(Membership& membership) {
  try {
    return membership.exchange->attempt(kEndOfRendezvous,
                                        [&] { return choose_backend(membership); });
  } catch (const std::exception& error) {
    // The parent's communicator cannot be used after a failed split, and the ranks of all groups
    // that it was to be split into wait for this rank.
    if (membership.parent) membership.parent->abort(first_line(error));
    throw;
  }
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
    auto backend = choose_together(membership);
    // Rank 0 may leave right after this, and its store with it, so it waits until all ranks are
    // connected.
    membership.exchange->exchange(kEndOfRendezvous, "", [&] { backend->check(); });
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
    if (nccl::may_share_gpu()) {
      log_info(shared, " over NCCL: this is for correctness, not for speed");
    } else {
      log_warning(shared,
                  ", which NCCL refuses without the settings of `lockstep run --share-gpu`; choose "
                  "backend auto or shm");
    }
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

}  // namespace lockstep::comm
