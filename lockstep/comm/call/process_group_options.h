// How ranks join a group.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <torch/types.h>

#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API ProcessGroupOptions {
  /// "auto" selects NCCL if every rank's `device` is a GPU of its own, shared memory if all ranks
  /// are proven to be on one host, "hierarchical" for several hosts if at least one has several
  /// ranks, and otherwise Gloo. "hierarchical" is shared memory inside each host and Gloo between
  /// the hosts, whatever the ranks' devices are. The other values are "shm", "gloo" and "nccl". A
  /// group of one is "single", or "nccl" if that is requested; it then runs NCCL's kernels on its
  /// one GPU.
  std::string backend = "auto";
  /// Deadline of the rendezvous and of every wait without its own timeout.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// The device of the tensors to communicate, and of allocate(). It becomes the current device of
  /// the thread that joins. With a backend other than NCCL, CUDA tensors go through pinned host
  /// memory, so several ranks may share one GPU.
  torch::Device device = torch::kCPU;
  /// Ranks with equal ids are assumed to be on one host; whether they can share memory is tested.
  /// Absent: LOCKSTEP_HOST_ID, else the kernel's boot id combined with the process and network
  /// namespaces.
  std::optional<std::string> host_id{};
  /// Run NCCL's kernels in high-priority streams, so that a reduction does not queue behind the
  /// rest of a backward pass. TORCH_NCCL_HIGH_PRIORITY=1 does the same.
  bool high_priority_streams = false;
  /// Check each rank's inputs to reductions for NaN. If one has a NaN, all ranks throw a CommError
  /// that names the rank and the operation. LOCKSTEP_NAN_CHECK=1 does the same.
  bool nan_check = false;
  /// How long a host may stay silent before a group over Gloo considers its ranks dead, without
  /// waiting for `timeout`. A rank that is silent while its host answers, because it is stopped or
  /// gets no processor time, is still waited for. Zero: wait for a silent host until `timeout`.
  /// Over NCCL, which has no connection whose state could be queried, a rank that has been silent
  /// for this time counts as dead, even if it is only stopped. Absent: LOCKSTEP_HOST_TIMEOUT, else
  /// 10 s.
  std::optional<std::chrono::milliseconds> host_timeout{};
  /// Where the flight recorder of a failed group is written, as DIRECTORY/rank_N. Absent:
  /// LOCKSTEP_FLIGHT_RECORDER, else lockstep_flight_UID/JOB in the folder for temporary files,
  /// where JOB consists of the time at which rank 0 joined and its process id, so that all ranks
  /// use the same folder.
  std::optional<std::filesystem::path> flight_recorder_directory{};
  /// The rank and place of this process; worker_environment() if absent. Tests that run ranks as
  /// threads set it.
  std::optional<WorkerEnvironment> environment{};
};

}  // namespace lockstep
