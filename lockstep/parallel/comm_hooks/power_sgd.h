// PowerSGD: gradients travel as products of two thin matrices (Vogels, Karimireddy and Jaggi,
// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019).
//
//   lockstep::PowerSgd power_sgd(group, {.matrix_approximation_rank = 2,
//                                        .start_power_sgd_iter = 100});
//   ddp.register_comm_hook(power_sgd.hook());
//
// A gradient is a matrix M (rows x columns, its memory by its outermost dimension). With Q (columns
// x rank) of the step before: P = mean(M Q), orthogonalised; Q = mean(M^T P); the result is P Q^T.
// What a rank's own M has beside it is added to its gradient of the next step (error feedback).
// Tensors that gain too little (all vectors) travel whole, beside P.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Names, meaning and defaults are those of PyTorch's PowerSGDState. All ranks must give the same.
struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;  ///< of P and Q; at most a matrix's rows and columns
  /// Steps with the plain mean before. (PyTorch wants at least 2; here buckets may be rebuilt any
  /// time.)
  std::int64_t start_power_sgd_iter = 1000;
  /// A matrix is compressed if (rows + columns) x rank x this < rows x columns.
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;  ///< Q of the step before; else random numbers in each step
  /// 0: by QR, which needs none, also for gradients of zero. Above 0 P is orthogonalised by
  /// Gram-Schmidt, with this added to the norms, as in the paper's program.
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;  ///< gives the same Q as PyTorch's
  /// Matrices of one shape in a bucket are multiplied at once, from a copy.
  bool batch_tensors_with_same_shape = false;
};

struct PowerSgdStatistics {
  std::int64_t iterations = 0;  ///< steps, with those before start_power_sgd_iter
  /// Elements that this rank wanted to reduce since then, and that it gave to all-reduces.
  std::int64_t elements_before_compression = 0;
  std::int64_t elements_after_compression = 0;
  double compression_rate() const;  ///< before / after; 0 when there was no compression yet
};

/// Q and the error belong to parameters, and survive a rebuild of the buckets. P and Q of a bucket
/// lie in memory of group.allocate(), the error in the rank's own: as much as the compressed
/// gradients. The result is the same on all ranks as long as these multiply alike, as processors of
/// one kind do. When any rank's gradient is not finite, or P or Q overflows, the result is NaN
/// everywhere, which a loss scaler sees; the bucket's errors begin anew, and so does a Q that
/// overflowed. Copies share one state. Not thread-safe.
class PowerSgd {
 public:
  /// The type of StateDict.
  using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

  /// ConfigError for options that cannot be.
  explicit PowerSgd(ProcessGroup group, const PowerSgdOptions& options = {});

  /// Keeps the state alive. For one DistributedDataParallel only.
  CommHook hook() const;

  PowerSgdStatistics statistics() const;

  /// Copies of what a resumed run needs to go on as if it had not ended, between two steps:
  /// "iteration" and "seeds_drawn", equal on all ranks, as is "q.NAME" of each compressed
  /// parameter, unless it is to be drawn anew; and "error.NAME", which is this rank's own.
  NamedTensors state_dict(const torch::nn::Module& module) const;

  /// Between two steps, on all ranks. Where no "error.NAME" is given (another world size) that
  /// error begins as zero. CheckpointError, and nothing is changed, for a name that the module does
  /// not have, a tensor that does not fit its parameter, and without "iteration" or "seeds_drawn".
  void load_state_dict(const torch::nn::Module& module, const NamedTensors& state);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
