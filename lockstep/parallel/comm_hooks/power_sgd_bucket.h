// The arithmetic of PowerSGD on one bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/comm_hooks/power_sgd.h>

namespace lockstep {

/// A dense gradient as a matrix, in the order of its memory: of a convolution in channels_last the
/// columns are another permutation than PyTorch's, which changes nothing for a product of low rank.
torch::Tensor as_matrix(const torch::Tensor& gradient);

/// The columns of each of [count, rows, columns] become orthonormal, spanning the same spaces from
/// the left. See PowerSgdOptions::orthogonalization_epsilon.
void orthogonalize(const torch::Tensor& matrices, double epsilon);

/// The memory of a bucket's factors, and the steps between its messages. Knows no ranks.
class PowerSgdBucket {
 public:
  /// Matrices of one shape that are multiplied at once.
  struct Batch {
    std::vector<std::size_t> members;  ///< in GradBucket::gradients
    std::int64_t rows, columns, rank;
    torch::Tensor p, q;   ///< [members, rows, rank], [members, columns, rank]
    torch::Tensor error;  ///< [members, rows, columns]; undefined without error feedback
    torch::Tensor input;  ///< M, while a step is under way
  };

  PowerSgdBucket(const GradBucket& bucket, const PowerSgdOptions& options);

  /// What take_memory() wants.
  std::int64_t elements() const { return q_begin_ + q_elements_; }
  /// P, Q and the tensors that travel whole are to lie in `memory`: one dimension, zero.
  void take_memory(const torch::Tensor& memory, const GradBucket& bucket);

  /// Adds the errors; P = M Q; copies what travels whole.
  void begin(const std::vector<torch::Tensor>& gradients);
  torch::Tensor first_message;  ///< P and what travels whole; becomes the mean
  /// False if the first message is not finite in P: then gradients are NaN, and the errors zero. On
  /// a device, which nobody waits for, always true.
  [[nodiscard]] bool compute_q(const std::vector<torch::Tensor>& gradients);
  torch::Tensor second_message;  ///< Q; becomes the mean
  /// Gradients become P Q^T, errors what they lack; as in compute_q() if the second message is not
  /// finite, and then Q is no more known. Both messages, and so both decisions, are all ranks'. On
  /// a device the same comes of either message, by arithmetic, but Q is what it was before the
  /// step.
  void finish(const std::vector<torch::Tensor>& gradients);

  std::uint64_t layout() const { return layout_; }
  std::vector<Batch>& batches() { return batches_; }
  std::int64_t elements_before_compression() const { return before_; }
  std::int64_t elements_after_compression() const { return after_; }

  bool q_is_known = false;  ///< else it must be filled with random numbers

 private:
  void begin_anew(const std::vector<torch::Tensor>& gradients);
  void decompress(const std::vector<torch::Tensor>& gradients);
  void undo_on_device(const std::vector<torch::Tensor>& gradients);
  bool is_on_device() const { return !first_message.is_cpu(); }

  PowerSgdOptions options_;
  std::uint64_t layout_;
  std::vector<Batch> batches_;
  std::vector<std::size_t> whole_;           // gradients that are not compressed
  std::vector<torch::Tensor> whole_copies_;  // of these, in the first message
  std::int64_t p_elements_ = 0, whole_elements_ = 0, q_elements_ = 0, q_begin_ = 0;
  std::int64_t before_ = 0, after_ = 0;
  // On a device, while a step is under way:
  torch::Tensor former_q_;   // the second message before the step
  torch::Tensor is_finite_;  // whether both messages are, a bool
};

}  // namespace lockstep
