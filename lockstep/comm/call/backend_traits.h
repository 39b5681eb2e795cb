// The capabilities of a transport, for code that chooses how to use it.
#pragma once

#include <lockstep/core/export.h>

namespace lockstep {

/// The defaults describe a transport that works in host memory and has its own threads. Properties
/// that depend on a call or on a group's device are functions of Backend or ProcessGroup.
struct LOCKSTEP_API BackendTraits {
  enum class Memory {
    kAny,     ///< a group of one: any device
    kHost,    ///< CPU; tensors on a device are copied through pinned memory
    kDevice,  ///< on the group's device
  };
  Memory memory = Memory::kHost;

  /// Operations have completed when the call that starts them returns.
  bool completes_at_once = false;
  /// Operations make progress even while no thread of this rank is inside a call of a group.
  bool progresses_alone = true;
  /// A message does not wait for this rank's messages to or from other ranks. If false, neither the
  /// point-to-point algorithms nor pipelines can use the transport.
  bool messages_overlap = true;
  /// A message takes thousands of times as long as in shared memory, whatever its size.
  bool slow_messages = false;
  /// all_reduce sends 16-bit floats as float32. An all_to_all followed by an all_gather averages
  /// them with fewer bytes.
  bool widens_halves = false;
  /// Memory from allocate() is communicated without a copy.
  bool uses_own_memory = true;
  /// A group over this transport can be split, which is faster than connecting a new group.
  bool splits = false;
};

}  // namespace lockstep
