// How ranks join a group.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <torch/types.h>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

struct ProcessGroupOptions {
  /// "auto": NCCL when every rank's `device` is a GPU of its own; shared memory when all ranks are
  /// proved to be on one host; "hierarchical" for several hosts of which one has several ranks;
  /// else Gloo. Or one of "shm", "gloo", "nccl", "hierarchical". A group of one is "single" unless
  /// it says "nccl", which then runs its kernels on that one GPU.
  std::string backend = "auto";
  /// Deadline of the rendezvous and of every wait that is not given its own.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Where the tensors live that will be communicated, and where allocate() allocates. It becomes
  /// the current device of the thread that joins. CUDA tensors of a backend other than NCCL go
  /// through pinned host memory, so that several ranks may share one GPU.
  torch::Device device = torch::kCPU;
  /// Ranks with the same one are taken to be on one host; whether they can share memory is tried.
  /// Absent: LOCKSTEP_HOST_ID, else the boot of the kernel and the namespaces of processes and
  /// network.
  std::optional<std::string> host_id{};
  /// What the hosts of "hierarchical" talk through: "gloo" or "nccl". "auto": NCCL where the
  /// `device` of each host's first rank is a GPU of its own and NCCL connects them, else Gloo. The
  /// same on all ranks. Absent: LOCKSTEP_LEADERS, else "auto".
  std::optional<std::string> leaders{};
  /// NCCL's kernels run in streams of high priority, so that a reduction does not queue behind the
  /// rest of a backward. TORCH_NCCL_HIGH_PRIORITY=1 does the same.
  bool high_priority_streams = false;
  /// Look for NaN in what a rank gives to a reduction, before it spreads: CommError on all ranks
  /// that names the rank and the operation. Also LOCKSTEP_NAN_CHECK=1.
  bool nan_check = false;
  /// How long a host may answer nothing before a group over Gloo takes its ranks for dead, in place
  /// of waiting for `timeout`. A rank that is silent while its host answers, because it is stopped
  /// or has no processor, is waited for. Zero: hosts are always waited for. Over NCCL, where there
  /// is no connection whose state could be queried, a rank that has been silent for this time
  /// counts as dead, stopped or not. Absent: LOCKSTEP_HOST_TIMEOUT, else 10 s.
  std::optional<std::chrono::milliseconds> host_timeout{};
  /// Where the flight recorder of a failed group is written, as DIRECTORY/rank_N. Absent:
  /// LOCKSTEP_FLIGHT_RECORDER, else lockstep_flight_UID/JOB in the folder for temporary files,
  /// where JOB is the time and the process in which rank 0 joined: the same on all ranks.
  std::optional<std::filesystem::path> flight_recorder_directory{};
  /// The rank and place of this process; worker_environment() if absent. Tests with ranks as
  /// threads set it.
  std::optional<WorkerEnvironment> environment{};
};

}  // namespace lockstep
