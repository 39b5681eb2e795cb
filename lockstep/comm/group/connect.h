// Connects groups over a store: the first group of a process, and groups over a store that the
// caller provides.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/group/membership.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep::comm {

/// Collective. Makes a group of the `size` ranks that call it with the same store. The caller
/// serves the store, and no other group may use it (a c10d::PrefixStore over it is enough).
/// Intended for bindings: PyTorch brings its own store. May be called many times in a process;
/// while a thread waits for one of these groups, the others make progress, too. options.environment
/// provides only the rank in the first group, for messages and the flight recorder (default:
/// `rank`), and the attempt number of an elastic job, which separates its keys from those of
/// earlier attempts in the same store. The caller controls which processes can reach the store, so
/// a missing LOCKSTEP_SECRET is not an error here. Throws the errors of init_process_group.
ProcessGroup join_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                        const ProcessGroupOptions& options);

/// Collective over the members. Chooses and connects the backend. Also handles a group of one,
/// which uses NCCL only if the options ask for it.
ProcessGroup connect(Membership membership);

/// Rank 0 logs a warning if ranks of a first group compute on the same device.
void tell_of_shared_devices(const std::vector<PeerInfo>& peers, int rank);

/// options.host_timeout, else LOCKSTEP_HOST_TIMEOUT, else the default. Throws ConfigError for a
/// negative value. Values above 1,000,000 s in the options are clamped to that.
std::chrono::milliseconds host_timeout(const ProcessGroupOptions& options);

/// Throws ConfigError, with `call` in the message, if the options are invalid.
void check_options(const ProcessGroupOptions& options,
                   const std::string& call = "init_process_group");

}  // namespace lockstep::comm
