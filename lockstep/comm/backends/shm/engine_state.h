// The parts of an engine that the threads of a rank share.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/comm/backends/shm/channels.h>
#include <lockstep/comm/backends/shm/chunk_pipeline.h>
#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/group_end.h>
#include <lockstep/comm/backends/shm/segment.h>
#include <lockstep/comm/backends/shm/sharing_cost.h>
#include <lockstep/comm/waiting/patience.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::shm {

struct EngineOptions {
  PatienceOptions patience{};
  /// Bytes of one staging slot. Small enough that a chunk is still in the cache when it is
  /// combined.
  std::size_t slot_bytes = std::size_t{256} << 10;
  /// Chunks of at most this many bytes are combined whole by every rank, which takes one round of
  /// waiting instead of two.
  std::size_t small_bytes = std::size_t{8} << 10;
  /// Symmetric memory is used in place from this size on, in bytes. Below it, the additional round
  /// of waiting costs more than a copy.
  std::size_t in_place_bytes = 1024;
  /// The ranks' names in error messages; empty: 0, 1, ...
  std::vector<int> world_ranks{};
  /// The operations that this process has under way in all groups; may be null.
  std::shared_ptr<comm::Progress> progress{};
};

struct EngineState {
  EngineState(std::shared_ptr<Segment> segment, int rank, int size, EngineOptions options);

  const EngineOptions options;
  const std::shared_ptr<Segment> memory;  // the control segment
  const Control control;
  const int rank;
  const int size;
  GroupEnd end;

  std::mutex mutex;  // guards the members below
  SharingCost sharing_cost;
  ChunkPipeline chunks;
  Channels channels;

  /// Moves all chunks and messages as far as possible; returns whether anything moved. Throws
  /// CommError, and aborts the group, when a peer made a different call. Requires the lock.
  bool advance();
  /// advance(), and wakes the peers that wait for what moved. Throws if the group has ended.
  /// Requires the lock.
  bool advance_and_wake();
  /// Throws if the group has been aborted or a peer has died. Takes the lock.
  void throw_if_ended();
};

}  // namespace lockstep::shm
