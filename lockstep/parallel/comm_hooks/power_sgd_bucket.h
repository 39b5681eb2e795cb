// The arithmetic of PowerSGD on one bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/comm_hooks/power_sgd.h>

namespace lockstep::parallel {

/// A dense gradient viewed as a matrix, in memory order. For a convolution in channels_last the
/// columns are permuted compared to PyTorch's, which does not affect a low-rank product.
torch::Tensor as_matrix(const torch::Tensor& gradient);

/// Orthonormalises the columns of each matrix in [count, rows, columns], from left to right: the
/// first k columns span the same space as before, for every k. See
/// PowerSgdOptions::orthogonalization_epsilon.
void orthogonalize(const torch::Tensor& matrices, double epsilon);

/// Holds the memory of a bucket's factors and performs the computations between its messages. Does
/// not communicate.
class PowerSgdBucket {
 public:
  /// Matrices of one shape that are multiplied together.
  struct Batch {
    std::vector<std::size_t> members;  ///< indices in GradBucket::gradients
    std::int64_t rows, columns, rank;
    torch::Tensor p, q;   ///< [members, rows, rank], [members, columns, rank]
    torch::Tensor error;  ///< [members, rows, columns]; undefined without error feedback
    torch::Tensor input;  ///< M, while a step is in progress
  };

  PowerSgdBucket(const GradBucket& bucket, const PowerSgdOptions& options);

  /// The number of elements that take_memory() needs.
  std::int64_t elements() const { return q_begin_ + q_elements_; }
  /// Places P, Q and the uncompressed tensors in `memory`, which is one-dimensional and zero.
  void take_memory(const torch::Tensor& memory, const GradBucket& bucket);

  /// Adds the errors; computes P = M Q; copies the uncompressed tensors.
  void begin(const std::vector<torch::Tensor>& gradients);
  torch::Tensor first_message;  ///< P and the uncompressed tensors; becomes the mean
  /// Returns false if P in the first message is not finite; the compressed gradients then become
  /// NaN and the errors zero. On a device it always returns true, to avoid waiting.
  [[nodiscard]] bool compute_q(const std::vector<torch::Tensor>& gradients);
  torch::Tensor second_message;  ///< Q; becomes the mean
  /// Sets the gradients to P Q^T and the errors to the remainder. If the second message is not
  /// finite, sets gradients and errors as compute_q() does, and Q becomes unknown. Both messages,
  /// and so both decisions, are the same on all ranks. On a device this function handles both
  /// messages, with arithmetic instead of branches, and restores Q to its value before the step.
  void finish(const std::vector<torch::Tensor>& gradients);

  std::uint64_t layout() const { return layout_; }
  std::vector<Batch>& batches() { return batches_; }
  std::int64_t elements_before_compression() const { return before_; }
  std::int64_t elements_after_compression() const { return after_; }

  bool q_is_known = false;  ///< if not, Q must be filled with random numbers

 private:
  void begin_anew(const std::vector<torch::Tensor>& gradients);
  void decompress(const std::vector<torch::Tensor>& gradients);
  void undo_on_device(const std::vector<torch::Tensor>& gradients);
  bool is_on_device() const { return !first_message.is_cpu(); }

  PowerSgdOptions options_;
  std::uint64_t layout_;
  std::vector<Batch> batches_;
  std::vector<std::size_t> whole_;           // gradients that are not compressed
  std::vector<torch::Tensor> whole_copies_;  // their copies, in the first message
  std::int64_t p_elements_ = 0, whole_elements_ = 0, q_elements_ = 0, q_begin_ = 0;
  std::int64_t before_ = 0, after_ = 0;
  // On a device, while a step is in progress:
  torch::Tensor former_q_;   // the second message before the step
  torch::Tensor is_finite_;  // a bool: whether both messages are finite
};

}  // namespace lockstep::parallel
