// ProcessGroup: a set of ranks that communicate, and init_process_group, which makes the first one.
//
//   auto group = lockstep::init_process_group();          // torchrun, Slurm, mpirun, or alone
//   group.all_reduce(tensor, lockstep::ReduceOp::kAverage);
//   auto work = group.async_all_reduce(other);            // ... compute ...
//   work->wait();
//   auto row = group.split(group.rank() / 4);             // a group for every four ranks
//
// Names, arguments and meaning follow torch.distributed. Every collective must be called by all
// ranks of the group in the same order with the same shapes and types. If ranks disagree, an error
// lists each rank's call. Over shared memory, the ranks that wait for each other's data throw it;
// over Gloo, the watchdog does. With LOCKSTEP_DEBUG=detail, every backend throws it before any data
// is sent. docs/communication.md describes which mismatches are detected, and when. Tensors may be
// views, strided or empty; outputs are written in place, which autograd notices. A tensor that is
// written must not share memory with another tensor of the call (ConfigError), except that what a
// rank gives to itself may be in its place already.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/backend_traits.h>
#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/call/recorded_call.h>
#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/comm/call/work.h>
#include <lockstep/core/export.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;
using WorkPtr = std::shared_ptr<Work>;

/// One message of batch_isend_irecv.
struct LOCKSTEP_API P2POp {
  enum class Kind { kSend, kRecv };
  Kind kind = Kind::kSend;
  torch::Tensor tensor{};
  int peer = 0;  ///< another rank of the group; a batch cannot receive from any source
  int tag = 0;
};

/// A value handle whose copies share one group. The group is released when the last copy is
/// destroyed and the last operation has ended or been dropped; an algorithm over point-to-point
/// messages always runs to completion. The destructor does not communicate. Several threads of a
/// rank may use a group if they start their calls in the same order on all ranks, for example by
/// async_ calls under a lock. Racing collectives with equal arguments do not fail, but which of
/// them meet is undefined. Wrong arguments throw a ConfigError with the rank, the operation, and
/// the actual and expected values; Work describes later failures. Ranks, roots and peers are ranks
/// of this group.
class LOCKSTEP_API ProcessGroup {
 public:
  int rank() const;
  int size() const;
  int local_rank() const;  ///< among the ranks of this group on this host
  int local_size() const;
  /// "single" (one process), "shm", "gloo", "nccl" or "hierarchical".
  const std::string& backend() const;
  /// What the backend can do.
  const BackendTraits& traits() const;
  /// The members' ranks in the first group, in the order of this group.
  const std::vector<int>& world_ranks() const;
  std::chrono::milliseconds timeout() const;
  /// Whether operations proceed without help from this rank, either on a stream of its device
  /// ("nccl") or because they complete immediately ("single"). Polling is_completed() of their Work
  /// then has no effect on progress.
  bool runs_on_stream() const;
  /// Why a CUDA graph cannot record and replay this group's operations, as the end of a sentence;
  /// empty if it can. During a stream capture, ConfigError is thrown by calls whose device tensors
  /// go through the host and by waits for operations begun before the capture.
  std::string why_not_capturable() const;

  // --- Collectives: one tensor in, or out, on each rank ------------------------------------------

  /// In place: every rank's `tensor` becomes the reduction over all ranks, bitwise equal on all of
  /// them. The native shared-memory algorithm combines in rank order.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                  Algorithm algorithm = Algorithm::kAuto);
  WorkPtr async_all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                           Algorithm algorithm = Algorithm::kAuto);

  /// Every rank's `tensor` becomes the `tensor` of rank `root`.
  void broadcast(const torch::Tensor& tensor, int root = 0);
  WorkPtr async_broadcast(const torch::Tensor& tensor, int root = 0);

  /// The root's `tensor` becomes the reduction; the other ranks' tensors are not changed.
  void reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);

  /// Returns when all ranks have called it.
  void barrier();
  WorkPtr async_barrier();

  /// A barrier that names the missing ranks: at its deadline, the ranks that arrived throw a
  /// TimeoutError that lists them. Costs a few round trips to rank 0's store.
  void monitored_barrier(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // --- Collectives: one piece for each rank ------------------------------------------------------

  /// outputs[r] becomes rank r's `input`.
  void all_gather(Tensors outputs, const torch::Tensor& input);
  WorkPtr async_all_gather(Tensors outputs, const torch::Tensor& input);
  /// Like all_gather(), but into one tensor: `output` has size() times the elements of `input`, in
  /// rank order.
  void all_gather_into_tensor(const torch::Tensor& output, const torch::Tensor& input);
  WorkPtr async_all_gather_into_tensor(const torch::Tensor& output, const torch::Tensor& input);

  /// On the root, outputs[r] becomes rank r's `input`; the other ranks pass no outputs.
  void gather(const torch::Tensor& input, Tensors outputs, int root);
  WorkPtr async_gather(const torch::Tensor& input, Tensors outputs, int root);

  /// Rank r's `output` becomes the root's inputs[r]; the other ranks pass no inputs.
  void scatter(const torch::Tensor& output, Tensors inputs, int root);
  WorkPtr async_scatter(const torch::Tensor& output, Tensors inputs, int root);

  /// Rank r's `output` becomes the reduction of all ranks' inputs[r].
  void reduce_scatter(const torch::Tensor& output, Tensors inputs, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce_scatter(const torch::Tensor& output, Tensors inputs,
                               ReduceOp op = ReduceOp::kSum);
  /// Like reduce_scatter(), but from one tensor: `input` has size() times the elements of `output`.
  void reduce_scatter_tensor(const torch::Tensor& output, const torch::Tensor& input,
                             ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce_scatter_tensor(const torch::Tensor& output, const torch::Tensor& input,
                                      ReduceOp op = ReduceOp::kSum);

  /// outputs[r] becomes rank r's inputs[rank()]. Sizes may differ from pair to pair.
  void all_to_all(Tensors outputs, Tensors inputs);
  WorkPtr async_all_to_all(Tensors outputs, Tensors inputs);
  /// Like all_to_all(), but with one tensor for all outputs and one for all inputs, each split
  /// along dimension 0: this rank sends input_splits[r] rows of `input` to rank r and receives
  /// output_splits[r] rows of `output` from it. Empty splits mean equal splits.
  void all_to_all_single(const torch::Tensor& output, const torch::Tensor& input,
                         std::vector<std::int64_t> output_splits = {},
                         std::vector<std::int64_t> input_splits = {});
  WorkPtr async_all_to_all_single(const torch::Tensor& output, const torch::Tensor& input,
                                  std::vector<std::int64_t> output_splits = {},
                                  std::vector<std::int64_t> input_splits = {});

  // --- Many tensors in one operation -------------------------------------------------------------

  /// Like all_reduce() and broadcast(), for tensors of any shapes and element types, with one
  /// collective per element type.
  void all_reduce_coalesced(Tensors tensors, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_all_reduce_coalesced(Tensors tensors, ReduceOp op = ReduceOp::kSum);
  void broadcast_coalesced(Tensors tensors, int root = 0);
  WorkPtr async_broadcast_coalesced(Tensors tensors, int root = 0);

  // --- Objects: bytes of any length --------------------------------------------------------------

  /// Returns the objects of all ranks, in rank order.
  std::vector<std::string> all_gather_object(const std::string& object);
  /// Returns the objects of all ranks on the root, and an empty vector on the other ranks.
  std::vector<std::string> gather_object(const std::string& object, int root = 0);
  /// Returns the root's object; the argument is ignored on the other ranks.
  std::string broadcast_object(const std::string& object, int root = 0);
  /// Returns the root's objects[rank()].
  std::string scatter_object(const std::vector<std::string>& objects, int root = 0);

  // --- Point-to-point ----------------------------------------------------------------------------

  /// Messages between two ranks with the same tag arrive in the order in which they were sent. Both
  /// sides pass tensors of the same size and type. NCCL ignores tags.
  void send(const torch::Tensor& tensor, int destination, int tag = 0);
  WorkPtr isend(const torch::Tensor& tensor, int destination, int tag = 0);
  /// Returns the sender's rank. Without `source`, receives from any rank; "nccl" and "hierarchical"
  /// do not support this and throw a ConfigError, but new_group(ranks, "gloo") makes a group that
  /// does.
  int recv(const torch::Tensor& tensor, std::optional<int> source = std::nullopt, int tag = 0);
  WorkPtr irecv(const torch::Tensor& tensor, std::optional<int> source = std::nullopt, int tag = 0);
  /// Starts all messages together. Their order may differ between ranks, because none waits for
  /// another.
  std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& operations);

  // --- Memory and groups -------------------------------------------------------------------------

  /// Collective. Returns a zeroed tensor on the group's device. If it is symmetric memory,
  /// collectives on it and on views of it make no copies: on the CPU of a single host it is shared
  /// between the ranks, and over NCCL it is registered with NCCL if possible. Otherwise it is plain
  /// memory, including on a GPU whose group works in host memory. All ranks must use it at the same
  /// offset. The tensor may outlive the group. After a failure of the group its contents are
  /// undefined on every rank: a peer may have written a part of its results, or still be writing.
  /// Throws a ConfigError if no tensor can have the shape or there is not enough memory; the group
  /// remains usable, and ranks that share the memory throw together.
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype);

  /// Views of the same place in each rank's memory. If `tensor` lies in memory that this rank got
  /// from this group's allocate(), returns one tensor per rank with the shape and strides of
  /// `tensor`, which can be read and written like any other; the one at index rank() is `tensor`
  /// itself. Returns none for other memory, or if the ranks do not share memory ("gloo", "nccl",
  /// "hierarchical"). In a group of one, returns `tensor` itself. Local: only collectives, such as
  /// barrier(), ensure that a peer has finished writing. The views hold the memory and may outlive
  /// the group, but collectives on views of peers' memory make copies.
  Tensors peer_views(const torch::Tensor& tensor) const;

  /// Whether ranks share the memory returned by allocate(), so that peer_views() works on it. False
  /// in a group of one.
  bool shares_memory() const;

  /// Collective over this group. Makes a group of the given ranks of this group, in that order. All
  /// ranks pass the same list; ranks that are not in it get an empty result. `backend` is that of
  /// ProcessGroupOptions, by default the backend requested for this group.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks,
                                        const std::optional<std::string>& backend = std::nullopt);
  /// Collective over this group. Makes one group per color, with its ranks ordered by (key, rank)
  /// as in MPI_Comm_split. A rank with a negative color gets an empty result.
  std::optional<ProcessGroup> split(int color, int key = 0);

  /// Local. Returns this rank's calls that have ended since `from`: in this group, in the first
  /// group, and in all groups made from the first. Only the last 2,000 operations are kept.
  std::vector<RecordedCall> recorded_calls(Clock::time_point from) const;

  /// Ends the group on all ranks: every current and later wait throws CommError with `reason` and,
  /// on the other ranks, the name of this rank. The first reason wins. Does not block.
  void abort(const std::string& reason);

  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// Collective. Joins the ranks that the environment names, once per process; without a launcher,
/// makes a group of one. Throws ConfigError for an invalid environment or option, and CommError or
/// TimeoutError that names the ranks that are missing or inconsistent. If there are several ranks,
/// the process ignores SIGPIPE from here on unless the program handles it: a peer's death must
/// cause an error, not kill this process.
LOCKSTEP_API ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

/// Whether this build contains the NCCL backend.
LOCKSTEP_API bool nccl_available();

}  // namespace lockstep
