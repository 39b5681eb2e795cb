// Join: training when ranks have different numbers of batches.
//
//   Join join(ddp.core(), JoinMode::kWeighted);
//   Batch batch;
//   while (join.next(loader.next(batch) ? batch.size : 0)) {
//     optimizer.zero_grad();
//     join.backward([&] { return criterion(ddp.forward(batch.x), batch.y); });
//     optimizer.step();
//   }
//
// Without Join, the ranks that still have batches would wait for the others until the deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/parallel/distributed_data_parallel.h>

namespace lockstep {

enum class JoinMode {
  /// All ranks stop when the first rank runs out of batches; the others' remaining batches are
  /// unused.
  kShortest,
  /// All ranks continue until the last rank runs out of batches. A rank without a batch takes part
  /// with zero gradients and also steps its optimizer, so that the replicas stay equal. Each sample
  /// of a step has the same weight: a rank's loss, a mean over its batch, is weighted by the rank's
  /// share of the step's samples.
  kWeighted,
};

/// One pass over the data. All ranks use it in the same way, with one forward and one backward per
/// step. Holds a reference to `ddp`, which must outlive it. Not thread-safe. Each step exchanges
/// one more number than a step without Join.
class LOCKSTEP_API Join {
 public:
  /// Throws ConfigError for kWeighted with DdpOptions::sync_batch_norm, whose forward needs all
  /// ranks.
  Join(DdpCore& ddp, JoinMode mode);

  /// Collective. `samples` is the size of this rank's next batch, or 0 if it has none. Returns
  /// whether there is another step; all ranks get the same answer. When there is none, report()
  /// says which ranks had too few batches, rank 0 logs it as a warning, and with kWeighted all
  /// ranks get the buffers of a rank that took part in the last step.
  bool next(std::int64_t samples);

  /// Collective. `loss` runs the forward and returns the mean loss over the batch; it is called
  /// only on ranks that have a batch. Returns that loss, or an undefined tensor on the other ranks.
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

  /// The factor that backward() applies to this rank's loss: 1 if all ranks have equally many
  /// samples.
  double weight() const { return weight_; }
  /// The number of steps in which each rank had a batch. The numbers are complete once next() has
  /// returned false.
  const std::vector<std::int64_t>& batches() const { return batches_; }
  /// "rank 1 had 3 batches, rank 0 had 5; ..."; empty if all ranks had equally many.
  std::string report() const;

 private:
  std::vector<std::int64_t> exchange(std::int64_t samples);
  void end();

  DdpCore& ddp_;
  const JoinMode mode_;
  std::int64_t samples_ = 0;
  double weight_ = 1;
  std::vector<std::int64_t> batches_;
  std::vector<bool> has_more_;  // as of the last call of next(), false before the first
};

}  // namespace lockstep
