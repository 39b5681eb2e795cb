// What a transport can do and how, for code that chooses between ways to use it.
#pragma once

#include <lockstep/core/export.h>

namespace lockstep {

/// The defaults are those of a transport that works in host memory and has threads of its own. What
/// depends on a call or on a group's device is a function of Backend or ProcessGroup.
struct LOCKSTEP_API BackendTraits {
  enum class Memory {
    kAny,     ///< a group of one: any device
    kHost,    ///< CPU; tensors on a device are copied through pinned memory
    kDevice,  ///< on the group's device
  };
  Memory memory = Memory::kHost;

  /// Operations have ended when their call returns.
  bool completes_at_once = false;
  /// Operations make progress even while no thread of this rank is inside a call of a group.
  bool progresses_alone = true;
  /// Messages do not wait for messages of this rank to or from other ranks. Without this, neither
  /// the algorithms over messages nor pipelines can use the transport.
  bool messages_overlap = true;
  /// A message takes thousands of times as long as in shared memory, whatever its size.
  bool slow_messages = false;
  /// all_reduce sends 16-bit floats as float32. An all_to_all followed by an all_gather averages
  /// them with fewer bytes.
  bool widens_halves = false;
  /// Memory from allocate() is communicated without a copy.
  bool uses_own_memory = true;
  /// A group over this transport can be split, which is faster than to connect new groups.
  bool splits = false;
};

}  // namespace lockstep
