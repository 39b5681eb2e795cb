// The names of the transports that a group may be asked to use.
#pragma once

#include <string>
#include <vector>

namespace lockstep::comm {

/// The values of ProcessGroupOptions::backend: "auto", then each transport. "nccl" is also listed
/// by a build without NCCL, which rejects it when a group is made.
const std::vector<std::string>& backend_names();
/// The names of backend_names() that need no GPU.
const std::vector<std::string>& host_backend_names();

}  // namespace lockstep::comm
