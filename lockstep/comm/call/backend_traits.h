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
  /// Operations proceed while no thread of this rank is in a call into a group.
  bool progresses_alone = true;
  /// Messages do not wait for messages of this rank to or from other ranks. Without this, neither
  /// the algorithms over messages nor pipelines can use the transport.
  bool messages_overlap = true;
  /// A message takes thousands of times as long as in shared memory, whatever its size.
  bool slow_messages = false;
  /// all_reduce sends 16-bit floats as float32, and more bytes than all_to_all and all_gather,
  /// which together average them as well.
  bool widens_halves = false;
  /// Memory from allocate() is communicated without a copy.
  bool uses_own_memory = true;
  /// Groups can be split from a group over it, faster than they would connect.
  bool splits = false;
};

}  // namespace lockstep
