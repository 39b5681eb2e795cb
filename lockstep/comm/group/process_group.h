// ProcessGroup: a set of ranks that communicate, and init_process_group, which makes the first one.
//
//   auto group = lockstep::init_process_group();          // torchrun, Slurm, mpirun, or alone
//   group.all_reduce(tensor, lockstep::ReduceOp::kAverage);
//   auto work = group.async_all_reduce(other);            // ... compute ...
//   work->wait();
//   auto row = group.split(group.rank() / 4);             // a group of each four ranks
//
// Names, arguments and meaning follow torch.distributed. Every collective must be called by all
// ranks of the group in the same order with the same shapes and types. Where ranks do not, an error
// says who called what: on shared memory from the ranks that wait for each other's data, over Gloo
// from the watchdog, and with LOCKSTEP_DEBUG=detail, on every backend, before anything is sent.
// docs/communication.md has when that is noticed, and when not. Tensors may be views, strided or
// empty; those that a call writes are written in place.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/call/recorded_call.h>
#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/comm/call/work.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;
using WorkPtr = std::shared_ptr<Work>;

/// One message of batch_isend_irecv.
struct P2POp {
  enum class Kind { kSend, kRecv };
  Kind kind = Kind::kSend;
  torch::Tensor tensor{};
  int peer = 0;  ///< another rank of the group; a batch has no receive from any source
  int tag = 0;
};

/// A value handle; copies share one group, which is left when the last copy has gone and the last
/// operation has ended or been dropped: one of the algorithms over point-to-point runs to its end.
/// The destructor does not communicate. Safe to use from several threads of a rank as long as all
/// ranks keep one order. Wrong arguments are a ConfigError that says rank, operation, got and
/// expected; see Work for what fails later. Ranks, roots and peers are those of this group.
class ProcessGroup {
 public:
  int rank() const;
  int size() const;
  int local_rank() const;  ///< among this group's ranks on this host
  int local_size() const;
  /// "single" (one process), "shm", "gloo", "nccl" or "hierarchical".
  const std::string& backend() const;
  /// The ranks of the members in the first group, in the order of this one.
  const std::vector<int>& world_ranks() const;
  std::chrono::milliseconds timeout() const;
  /// Whether operations go on while this rank does something else, on a stream of its device
  /// ("nccl"), or are complete at once ("single"). Asking their Work whether it is completed then
  /// helps nobody.
  bool runs_on_stream() const;
  /// Why a CUDA graph cannot record and replay this group's operations, as the end of a sentence;
  /// empty where it can. While a stream is captured, calls with tensors of a device that go through
  /// the host, and waits for what began before the capture, are a ConfigError.
  std::string why_not_capturable() const;

  // --- Collectives: one tensor in, or out, on each rank ------------------------------------------

  /// In place: every rank's `tensor` becomes the reduction over all ranks, bit for bit the same on
  /// all of them. Native shared memory combines in the order of the ranks.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                  Algorithm algorithm = Algorithm::kAuto);
  WorkPtr async_all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                           Algorithm algorithm = Algorithm::kAuto);

  /// Every rank's `tensor` becomes that of rank `root`.
  void broadcast(const torch::Tensor& tensor, int root = 0);
  WorkPtr async_broadcast(const torch::Tensor& tensor, int root = 0);

  /// The root's `tensor` becomes the reduction; those of the others stay as they are.
  void reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);

  /// Returns when all ranks have called it.
  void barrier();
  WorkPtr async_barrier();

  /// A barrier that, at its deadline, throws TimeoutError on the ranks that came, naming those that
  /// did not. Costs some round trips to rank 0's store.
  void monitored_barrier(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // --- Collectives: one piece for each rank ------------------------------------------------------

  /// outputs[r] becomes rank r's `input`.
  void all_gather(Tensors outputs, const torch::Tensor& input);
  WorkPtr async_all_gather(Tensors outputs, const torch::Tensor& input);
  /// As all_gather(), into one tensor: `output` has size() times the elements of `input`, in the
  /// order of the ranks.
  void all_gather_into_tensor(const torch::Tensor& output, const torch::Tensor& input);
  WorkPtr async_all_gather_into_tensor(const torch::Tensor& output, const torch::Tensor& input);

  /// On the root outputs[r] becomes rank r's `input`; the others give no outputs.
  void gather(const torch::Tensor& input, Tensors outputs, int root);
  WorkPtr async_gather(const torch::Tensor& input, Tensors outputs, int root);

  /// Rank r's `output` becomes the root's inputs[r]; the others give no inputs.
  void scatter(const torch::Tensor& output, Tensors inputs, int root);
  WorkPtr async_scatter(const torch::Tensor& output, Tensors inputs, int root);

  /// Rank r's `output` becomes the reduction of all ranks' inputs[r].
  void reduce_scatter(const torch::Tensor& output, Tensors inputs, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce_scatter(const torch::Tensor& output, Tensors inputs,
                               ReduceOp op = ReduceOp::kSum);
  /// As reduce_scatter(), from one tensor: `input` has size() times the elements of `output`.
  void reduce_scatter_tensor(const torch::Tensor& output, const torch::Tensor& input,
                             ReduceOp op = ReduceOp::kSum);
  WorkPtr async_reduce_scatter_tensor(const torch::Tensor& output, const torch::Tensor& input,
                                      ReduceOp op = ReduceOp::kSum);

  /// outputs[r] becomes rank r's inputs[rank()]. Sizes may differ from pair to pair.
  void all_to_all(Tensors outputs, Tensors inputs);
  WorkPtr async_all_to_all(Tensors outputs, Tensors inputs);
  /// As all_to_all(), with one tensor each, cut along dimension 0: rank r gets input_splits[r] rows
  /// of `input` and gives output_splits[r] rows of `output`. No splits: equal ones.
  void all_to_all_single(const torch::Tensor& output, const torch::Tensor& input,
                         std::vector<std::int64_t> output_splits = {},
                         std::vector<std::int64_t> input_splits = {});
  WorkPtr async_all_to_all_single(const torch::Tensor& output, const torch::Tensor& input,
                                  std::vector<std::int64_t> output_splits = {},
                                  std::vector<std::int64_t> input_splits = {});

  // --- Many tensors in one operation -------------------------------------------------------------

  /// Tensors of any shapes and of several types; one collective for each type.
  void all_reduce_coalesced(Tensors tensors, ReduceOp op = ReduceOp::kSum);
  WorkPtr async_all_reduce_coalesced(Tensors tensors, ReduceOp op = ReduceOp::kSum);
  void broadcast_coalesced(Tensors tensors, int root = 0);
  WorkPtr async_broadcast_coalesced(Tensors tensors, int root = 0);

  // --- Objects: bytes of any length --------------------------------------------------------------

  std::vector<std::string> all_gather_object(const std::string& object);
  /// On the root all ranks' objects, elsewhere nothing.
  std::vector<std::string> gather_object(const std::string& object, int root = 0);
  /// Returns the root's object; what the others give does not matter.
  std::string broadcast_object(const std::string& object, int root = 0);
  /// Returns the root's objects[rank()].
  std::string scatter_object(const std::vector<std::string>& objects, int root = 0);

  // --- Point-to-point ----------------------------------------------------------------------------

  /// Messages between two ranks with one tag arrive in the order in which they were sent. Both
  /// sides give tensors of the same size and type. Over NCCL tags are ignored.
  void send(const torch::Tensor& tensor, int destination, int tag = 0);
  WorkPtr isend(const torch::Tensor& tensor, int destination, int tag = 0);
  /// Returns the rank that sent. No source: whoever sends first. Not with NCCL and "hierarchical",
  /// which have no way to (ConfigError): new_group(ranks, "gloo") makes a group that has.
  int recv(const torch::Tensor& tensor, std::optional<int> source = std::nullopt, int tag = 0);
  WorkPtr irecv(const torch::Tensor& tensor, std::optional<int> source = std::nullopt, int tag = 0);
  /// Starts all of them in whatever order of the ranks; none waits for another.
  std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& operations);

  // --- Memory and groups -------------------------------------------------------------------------

  /// Collective. A zeroed tensor on the group's device. Collectives on it, and on views of it, copy
  /// nothing where it is symmetric memory: on one host's CPU it is shared between the ranks, and
  /// over NCCL it is registered with that if it can be. Elsewhere it is plain memory, also on a GPU
  /// whose group works in host memory. It must be used at the same place by all ranks, and it
  /// outlives the group if it is held longer. After a failure of the group its contents are
  /// undefined on every rank: a peer may have written a part of its results, or still be writing.
  /// ConfigError, and the group goes on, if no tensor can have the shape or there is not
  /// enough memory left; ranks that share it throw together.
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype);

  /// Views of the same place in each rank's memory: for `tensor` in memory that this group's
  /// allocate() gave this rank, or a view of it, one tensor of its shape and strides for each rank,
  /// which can be read and written like any other (the second is `tensor` itself on rank 1). Empty
  /// where the ranks do not share memory ("gloo", "nccl", "hierarchical") and for other memory; in
  /// a group of one the tensor. Local: only collectives, such as barrier(), tell when a peer has
  /// written. The views hold the memory and may outlive the group, but collectives on peers' are no
  /// longer free of copies.
  Tensors peer_views(const torch::Tensor& tensor) const;

  /// Whether the ranks share what allocate() gives, so that it has peer_views(). False in a group
  /// of one.
  bool shares_memory() const;

  /// Collective over this group. A group of the given ranks of this one, in that order; nothing on
  /// ranks that are not among them. All give the same. `backend` as in ProcessGroupOptions; absent:
  /// what this group was asked for.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks,
                                        const std::optional<std::string>& backend = std::nullopt);
  /// Collective over this group. One group for each color, its ranks ordered by (key, rank) as by
  /// MPI_Comm_split; nothing where color is negative.
  std::optional<ProcessGroup> split(int color, int key = 0);

  /// Local. The calls of this rank that have ended since `from`: in this group, in the first one,
  /// and in all groups made from that. The last 2,000 operations are known.
  std::vector<RecordedCall> recorded_calls(Clock::time_point from) const;

  /// Ends the group on all ranks: every wait, now and later, throws CommError with `reason` and, on
  /// the other ranks, this one's name. The first reason wins. Does not block.
  void abort(const std::string& reason);

  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// Collective. Joins the ranks that the environment names, once in a process; alone, a group of
/// one. ConfigError for an environment or option that cannot be; CommError and TimeoutError say
/// which ranks are missing or contradict. With several ranks SIGPIPE is ignored from here on, if
/// the program does not handle it: a peer's death must become an error, not ours.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

/// Whether this build contains the NCCL backend.
bool nccl_available();

}  // namespace lockstep
