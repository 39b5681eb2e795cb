// One collective call after all checks, in the form that every backend takes.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/description.h>

namespace lockstep::comm {

/// Tensors are one-dimensional and contiguous, of one type and on the group's device. n is
/// description.count, N the number of ranks. Tensors that a rank does not need are undefined.
///
///   kind             input            output
///   barrier          -                -
///   broadcast        -                [n], in place: the root's is read, the others' written
///   reduce           [n]              [n] on the root (may be the input); undefined elsewhere
///   all_reduce       -                [n], in place
///   gather           [n]              [N n] on the root
///   all_gather       [n]              [N n]; input may be its own place in output
///   scatter          [N n] on the root  [n]
///   reduce_scatter   [N n]            [n]; output may be its own place in input
///   all_to_all       [N n]            [N n], not overlapping; with splits: [sum of them]
struct Collective {
  CallDescription description;
  torch::Tensor input;
  torch::Tensor output;
  /// For an uneven all_to_all: elements sent to, and received from, each rank. If both are empty,
  /// every count is n.
  std::vector<std::int64_t> input_splits;
  std::vector<std::int64_t> output_splits;
  Algorithm algorithm = Algorithm::kAuto;  ///< used by all_reduce only
  std::uint64_t number = 0;                ///< counts the collectives of this group from 0

  bool uneven() const { return !input_splits.empty(); }
};

}  // namespace lockstep::comm
