// Losses that are means over the valid elements of all ranks.
//
// DistributedDataParallel averages the gradients of all ranks, so that each rank's loss has the
// same weight. If the ranks have different numbers of valid elements, as with padded text and
// ignore_index, the mean of the ranks' means is not the mean of the batch.
//
//   lockstep::MeanOverRanks mean(group);
//   for (...) {
//     optimizer.zero_grad();
//     mean.start(y.ne(kPadding).sum());                         // runs during the forward
//     auto sum = cross_entropy(ddp.forward(x), y, sum_of_valid);  // reduction(torch::kSum)
//     mean.of(sum).backward();
//     optimizer.step();
//   }
#pragma once

#include <cstdint>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// Scales each rank's sum of losses so that the average of the ranks' gradients is the gradient of
/// the mean over all ranks' valid elements, as in one process that has the whole batch. The ranks
/// add up their counts in one all-reduce of two numbers, which overlaps with the forward. Not
/// thread-safe.
class LOCKSTEP_API MeanOverRanks {
 public:
  /// Collective. `group` is that of the DistributedDataParallel or its equivalent that averages the
  /// gradients.
  explicit MeanOverRanks(ProcessGroup group);

  /// Collective, without waiting for the other ranks. `count` is the number of valid elements on
  /// this rank in all batches of the step, which may be 0, or the sum of their weights: a tensor of
  /// one element, on any device. Throws ConfigError for another tensor, once all ranks have called
  /// start(): their of() then throws ConfigError, too. Over NCCL, which does not wait, it returns
  /// NaN instead.
  void start(const torch::Tensor& count);
  void start(std::int64_t count);

  /// Returns sum * size / total, for the sum of the losses of this rank's valid elements and the
  /// total of all ranks' counts: call backward() on it. The average over the ranks of the results
  /// is the loss of the batch. If the total is 0, returns sum * size. The result is at least
  /// float32. May be called for each of the batches of one start(), all but the last of which
  /// accumulate under no_sync(). Waits for the other ranks' start(); over NCCL the device waits,
  /// not the host. Throws ConfigError before the first start(), and if a rank's last start() did.
  torch::Tensor of(const torch::Tensor& sum);

 private:
  void finish();

  ProcessGroup group_;
  torch::Tensor sums_;   // counts and refusals of the ranks, float64
  WorkPtr work_;         // adds up sums_; null if it has ended
  torch::Tensor scale_;  // size / total
  double refusals_ = 0;  // ranks whose count was refused; not read from a device
};

}  // namespace lockstep
