// Groups over a store: the first one of a process, and over a store that somebody else serves.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/group/membership.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// Collective. A group of the `size` ranks that call it with the same store, which the caller
/// serves and which no other group may use (a c10d::PrefixStore of it serves as well). For
/// bindings: PyTorch brings its own store. May be called many times in a process; all groups made
/// by it move while one is waited for. options.environment says only which rank of the first group
/// this is, for messages and for the flight recorder (default: `rank`), and which attempt of an
/// elastic job, whose keys an earlier attempt in the same store must not meet. Who may reach the
/// store is the caller's business: a missing LOCKSTEP_SECRET is no error here. Errors as
/// init_process_group.
ProcessGroup join_store(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                        const ProcessGroupOptions& options);

/// Collective over the members. Chooses and connects the backend; alone, a group of one, which is
/// over NCCL only where the options say so.
ProcessGroup connect(Membership membership);

/// Rank 0 warns in the log when ranks of a first group compute on one device.
void tell_of_shared_devices(const std::vector<Profile>& profiles, int rank);

/// options.host_timeout, else LOCKSTEP_HOST_TIMEOUT, else the default. ConfigError for a negative
/// one; more than 1,000,000 s in the options are that many.
std::chrono::milliseconds host_timeout(const ProcessGroupOptions& options);

/// Throws ConfigError, in the name of `call`, for options that cannot be.
void check_options(const ProcessGroupOptions& options,
                   const std::string& call = "init_process_group");

}  // namespace lockstep
