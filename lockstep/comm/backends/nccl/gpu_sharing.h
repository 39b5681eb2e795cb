// Settings with which NCCL lets several ranks compute on one GPU. Such a run is slow: it shows that
// a program for several GPUs computes the right thing, on a machine that has too few of them.
//
//   const auto sharing = nccl::gpu_sharing(nccl::loaded_version());
//   if (sharing) nccl::share_gpu(*sharing, rank, /*one_host=*/true);   // before NCCL's first use
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::nccl {

/// How NCCL is made to accept two ranks on one GPU.
enum class GpuSharing {
  /// Each rank claims to be a host of its own. NCCL compares only the devices of one host, and
  /// moves data between hosts through sockets. NCCL 2.28 and 2.29 leave no other way.
  kOwnHosts,
  /// NCCL 2.30 and newer allow it on request.
  kOnRequest,
};

/// The version of the NCCL library in this process, in NCCL's own form: 22809 is 2.28.9. Empty in
/// programs without NCCL. Makes no CUDA call, so the process may fork afterwards.
std::optional<int> loaded_version();

/// "2.28.9" for 22809.
std::string version_text(int version);

/// The way that `version` has; empty without NCCL, and for versions before 2.28.
std::optional<GpuSharing> gpu_sharing(std::optional<int> version);

/// The environment variables that rank `rank` of the job needs, by name. With `one_host`, all ranks
/// of the job are on one host, which need no network.
std::vector<std::pair<std::string, std::string>> sharing_variables(GpuSharing sharing, int rank,
                                                                   bool one_host);

/// Sets sharing_variables() in this process, except those that the user has set. Call it on every
/// rank, before NCCL's first use.
void share_gpu(GpuSharing sharing, int rank, bool one_host);

/// Whether the environment, set by share_gpu() or by the user, lets NCCL accept ranks that share a
/// GPU.
bool may_share_gpu();

}  // namespace lockstep::nccl
