// Ranks with different numbers of batches.
//
//   Join join(ddp.core(), JoinMode::kWeighted);
//   Batch batch;
//   while (join.next(loader.next(batch) ? batch.size : 0)) {
//     optimizer.zero_grad();
//     join.backward([&] { return criterion(ddp.forward(batch.x), batch.y); });
//     optimizer.step();
//   }
//
// Without it the ranks that still have batches would wait for the others until the deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/distributed_data_parallel.h>

namespace lockstep {

enum class JoinMode {
  /// All stop when the first rank has no batch left; what the others have left is not used.
  kShortest,
  /// All go on until the last rank has no batch left. A rank without one takes part with gradients
  /// of zero, and steps its optimizer, too, so that the replicas stay equal. Each sample of a step
  /// counts the same: a rank's loss, a mean over its batch, is weighted by the share of its
  /// samples.
  kWeighted,
};

/// One pass over the data. All ranks use it alike, with one forward and one backward a step. Holds
/// `ddp`, which must outlive it. Not thread-safe. Each step exchanges one number more than a step
/// without it.
class Join {
 public:
  /// ConfigError for kWeighted with DdpOptions::sync_batch_norm, whose forward needs all ranks.
  Join(DdpCore& ddp, JoinMode mode);

  /// Collective. Says how many samples this rank's next batch has, 0 for no batch. Whether there is
  /// a step; the ranks agree on that. When there is none: which ranks had too few batches is in
  /// report(), rank 0 logs it as a warning, and with kWeighted all ranks have the buffers of one
  /// that went on to the last step.
  bool next(std::int64_t samples);

  /// Collective. `loss` runs the forward and returns the mean loss over the batch; it is called
  /// where there is one. Returns that loss, undefined elsewhere.
  template <class Loss>
  torch::Tensor backward(Loss&& loss) {
    if (samples_ == 0) {
      ddp_.step_without_backward();
      return {};
    }
    torch::Tensor value = loss();
    (weight_ == 1 ? value : value * weight_).backward();
    return value.detach();
  }

  /// What backward() multiplies this rank's loss by: 1 where all have as many samples.
  double weight() const { return weight_; }
  /// Steps in which each rank had a batch. Complete when next() has returned false.
  const std::vector<std::int64_t>& batches() const { return batches_; }
  /// "rank 1 had 3 batches, rank 0 had 5; ..."; empty where all had as many.
  std::string report() const;

 private:
  std::vector<std::int64_t> exchange(std::int64_t samples);
  void end();

  DdpCore& ddp_;
  const JoinMode mode_;
  std::int64_t samples_ = 0;
  double weight_ = 1;
  std::vector<std::int64_t> batches_;
  std::vector<bool> has_more_;  // in the last call of next()
};

}  // namespace lockstep
