// PowerSGD: reduces gradients as products of two thin matrices (Vogels, Karimireddy and Jaggi,
// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019).
//
//   lockstep::PowerSgd power_sgd(group, {.matrix_approximation_rank = 2,
//                                        .start_power_sgd_iter = 100});
//   ddp.register_comm_hook(power_sgd.hook());
//
// A gradient is a matrix M (rows x columns; rows run over its outermost dimension in memory). With
// Q (columns x rank) from the previous step: P = mean(M Q), orthogonalised; Q = mean(M^T P); the
// result is P Q^T. The difference between a rank's own M and the result is added to its next
// gradient (error feedback). Tensors that gain too little from compression (all vectors) are sent
// uncompressed, with P.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Names, meanings and defaults are those of PyTorch's PowerSGDState. All ranks must give the same
/// options.
struct LOCKSTEP_API PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;  ///< rank of P and Q, capped at a matrix's dimensions
  /// Number of initial steps that use the plain mean. PyTorch requires at least 2; here 0 is
  /// allowed, because the buckets may be rebuilt at any time.
  std::int64_t start_power_sgd_iter = 1000;
  /// A matrix is compressed if (rows + columns) x rank x min_compression_rate < rows x columns.
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;  ///< start from the previous step's Q; otherwise from random numbers
  /// 0: P is orthogonalised by QR, which needs no epsilon, even for zero gradients. Above 0: by
  /// Gram-Schmidt, with this value added to the norms, as in the paper's program.
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;  ///< a seed yields the same Q as in PyTorch
  /// Multiplies all matrices of the same shape in a bucket in one operation, from a copy.
  bool batch_tensors_with_same_shape = false;
};

struct LOCKSTEP_API PowerSgdStatistics {
  std::int64_t iterations = 0;  ///< steps, including those before start_power_sgd_iter
  /// Gradient elements since start_power_sgd_iter: before compression, and as passed to
  /// all-reduces.
  std::int64_t elements_before_compression = 0;
  std::int64_t elements_after_compression = 0;
  double compression_rate() const;  ///< before / after; 0 before the first compression
};

/// Q and the error belong to parameters and survive a rebuild of the buckets. P and Q of a bucket
/// are in memory from group.allocate(); the error is in the rank's own memory and as large as the
/// compressed gradients. The result is the same on all ranks if they multiply identically, as
/// processors of one kind do. When any rank's gradient is not finite, or P or Q overflows, the
/// result is NaN on all ranks, which a loss scaler detects; the bucket's errors are reset, and so
/// is a Q that overflowed. Copies share one state. Not thread-safe.
class LOCKSTEP_API PowerSgd {
 public:
  /// The type of StateDict.
  using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

  /// Throws ConfigError for invalid options.
  explicit PowerSgd(ProcessGroup group, const PowerSgdOptions& options = {});

  /// The hook keeps the state alive. Register it with one DistributedDataParallel only.
  CommHook hook() const;

  PowerSgdStatistics statistics() const;

  /// Copies of the state that a resumed run needs to continue as if uninterrupted. Call it between
  /// two steps. "iteration", "seeds_drawn" and "q.NAME" of each compressed parameter (unless it is
  /// to be drawn anew) are equal on all ranks; "error.NAME" is this rank's own.
  NamedTensors state_dict(const torch::nn::Module& module) const;

  /// Call it between two steps, on all ranks. If "error.NAME" is missing, as after a change of the
  /// world size, that error starts at zero. Throws CheckpointError, with nothing changed, for a
  /// name that the module does not have, for a tensor that does not fit its parameter, and if
  /// "iteration" or "seeds_drawn" is missing.
  void load_state_dict(const torch::nn::Module& module, const NamedTensors& state);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
