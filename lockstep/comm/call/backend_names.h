// The names of the transports that a group may be asked to use, and what is known of each by its
// name alone.
#pragma once

#include <string>
#include <vector>

namespace lockstep::comm {

/// A value of ProcessGroupOptions::backend. What an existing group can do is in BackendTraits; this
/// is for options, which are checked before there is a group. "auto" has each property that one of
/// the transports has that it may choose.
struct NamedBackend {
  std::string name;
  bool needs_gpu = false;             ///< Works with tensors on a GPU only.
  bool has_symmetric_memory = false;  ///< Communicates without copies in memory from allocate().
  bool runs_on_stream = false;        ///< A CUDA graph can record its collectives.
};

/// "auto", then each transport. "nccl" is also listed by a build without NCCL, which rejects it
/// when a group is made.
const std::vector<NamedBackend>& named_backends();
/// The row of `name`, which must be in the table.
const NamedBackend& named_backend(const std::string& name);

/// The names of named_backends().
const std::vector<std::string>& backend_names();
/// The names of the transports that need no GPU, and "auto".
const std::vector<std::string>& host_backend_names();

}  // namespace lockstep::comm
