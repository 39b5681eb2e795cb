// ProcessGroup: a set of ranks that communicate, and init_process_group, which makes the first one.
//
//   auto group = lockstep::init_process_group();          // torchrun, Slurm, mpirun, or alone
//   group.all_reduce(tensor, lockstep::ReduceOp::kAverage);
//   auto work = group.async_all_reduce(other);            // ... compute ...
//   work->wait();
//
// Names and meaning follow torch.distributed. Every collective must be called by all ranks in the
// same order with the same shapes and types; the shared-memory backend checks that and says who
// differed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <lockstep/comm/reduce_op.h>
#include <lockstep/comm/work.h>
#include <lockstep/comm/worker_environment.h>

namespace lockstep {

struct ProcessGroupOptions {
  /// "auto": NCCL when every rank's `device` is a GPU of its own, shared memory when all ranks are proved
  /// to be on one host, else Gloo. Or one of "shm", "gloo", "nccl".
  std::string backend = "auto";
  /// Deadline of the rendezvous and of every wait that is not given its own.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Where the tensors live that will be communicated.
  torch::Device device = torch::kCPU;
  /// Who this process is; worker_environment() where absent. Tests with ranks as threads set it.
  std::optional<WorkerEnvironment> environment;
};

/// A value handle; copies share one group, which is left when the last copy goes. The destructor does
/// not communicate. Safe to use from several threads of a rank as long as all ranks keep one order.
class ProcessGroup {
 public:
  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  /// "single" (one process), "shm", "gloo" or "nccl".
  const std::string& backend() const;

  /// Collective. In place: every rank's `tensor` becomes the reduction over all ranks, bit for bit
  /// the same on all of them. The shared-memory backend adds in the order of the ranks.
  void all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum);
  std::shared_ptr<Work> async_all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum);

  /// Collective. Every rank's `tensor` becomes that of rank `root`.
  void broadcast(torch::Tensor tensor, int root = 0);
  std::shared_ptr<Work> async_broadcast(torch::Tensor tensor, int root = 0);

  /// Collective. Returns when all ranks have called it.
  void barrier();

  /// Collective. The text that every rank gave, in the order of the ranks. For small metadata.
  std::vector<std::string> all_gather_text(const std::string& text);

  /// Collective. A zeroed tensor in symmetric memory: collectives on it (and on views of it) copy
  /// nothing. On one host's CPU it is shared between the ranks, elsewhere it is plain. It must be
  /// used at the same place by all ranks, and it outlives the group if it is held longer.
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype);

  /// Ends the group on all ranks: every wait, now and later, throws CommError with `reason` and this
  /// rank's name. The first reason wins. Does not block.
  void abort(const std::string& reason);

  std::chrono::milliseconds timeout() const;

  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// Collective. Joins the ranks that the environment names, once in a process; alone, a group of one. ConfigError for an
/// environment or option that cannot be; CommError and TimeoutError say which ranks are missing or
/// contradict. With several ranks SIGPIPE is ignored from here on, if the program does not handle it:
/// a peer's death must become an error, not ours.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

/// Whether this build contains the NCCL backend.
bool nccl_available();

}  // namespace lockstep
