#include <lockstep/parallel/comm_hooks/power_sgd_bucket.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep::parallel {
namespace {

using torch::Tensor;

constexpr std::int64_t kAlignment = 64;  // in elements: Q begins at a cache line for any dtype

Tensor all_finite_on_device(const Tensor& tensor) { return tensor.isfinite().all(); }

// Waits for the device of `tensor`.
bool all_finite(const Tensor& tensor) { return all_finite_on_device(tensor).item<bool>(); }

torch::Tensor wide(const Tensor& tensor) {
  const bool half =
      tensor.scalar_type() == torch::kFloat16 || tensor.scalar_type() == torch::kBFloat16;
  return half ? tensor.to(torch::kFloat32) : tensor;
}

Tensor gram_schmidt(const Tensor& matrices, double epsilon) {
  Tensor result = matrices.clone();
  const std::int64_t count = result.size(2);
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor column = result.narrow(2, i, 1);
    column.div_(column.norm(2, 1, /*keepdim=*/true).add_(epsilon));
    Tensor rest = result.narrow(2, i + 1, count - i - 1);
    rest.sub_(column.matmul(column.transpose(1, 2).matmul(rest)));
  }
  return result;
}

// Consecutive pieces of a flat tensor.
class Pieces {
 public:
  explicit Pieces(Tensor flat) : flat_(std::move(flat)) {}
  Tensor next(at::IntArrayRef shape) {
    const std::int64_t count = c10::multiply_integers(shape);
    return flat_.narrow(0, std::exchange(used_, used_ + count), count).view(shape);
  }

 private:
  Tensor flat_;
  std::int64_t used_ = 0;
};

}  // namespace

Tensor as_matrix(const Tensor& gradient) {
  if (gradient.is_complex()) return as_matrix(at::view_as_real(gradient));
  std::vector<std::int64_t> order(static_cast<std::size_t>(gradient.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return gradient.stride(a) > gradient.stride(b); });
  const std::int64_t rows = order.empty() ? 1 : gradient.size(order[0]);
  return gradient.permute(order).view({rows, rows == 0 ? 0 : gradient.numel() / rows});
}

void orthogonalize(const Tensor& matrices, double epsilon) {
  const Tensor values = wide(matrices);
  matrices.copy_(epsilon > 0 ? gram_schmidt(values, epsilon) : std::get<0>(at::linalg_qr(values)));
}

PowerSgdBucket::PowerSgdBucket(const GradBucket& bucket, const PowerSgdOptions& options)
    : options_(options), layout_(bucket.layout) {
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    const Tensor matrix = as_matrix(bucket.gradients[i]);
    const std::int64_t rows = matrix.size(0), columns = matrix.size(1), all = rows * columns;
    const std::int64_t rank = std::min({rows, columns, options.matrix_approximation_rank});
    const std::int64_t compressed = (rows + columns) * rank;
    const bool worth_it =
        static_cast<double>(compressed) * options.min_compression_rate < static_cast<double>(all);
    before_ += all;
    after_ += worth_it ? compressed : all;
    if (!worth_it) {
      whole_.push_back(i);
      whole_elements_ += all;
      continue;
    }
    p_elements_ += rows * rank;
    q_elements_ += columns * rank;
    // Matrices of one shape are consecutive, as in PyTorch, so that the random numbers are the
    // same.
    const auto same_shape = [&](const Batch& batch) {
      return batch.rows == rows && batch.columns == columns;
    };
    const auto last = std::find_if(batches_.rbegin(), batches_.rend(), same_shape);
    if (last != batches_.rend() && options.batch_tensors_with_same_shape) {
      last->members.push_back(i);
    } else {
      batches_.insert(last == batches_.rend() ? batches_.end() : last.base(),
                      Batch{.members = {i}, .rows = rows, .columns = columns, .rank = rank});
    }
  }
  q_begin_ = (p_elements_ + whole_elements_ + kAlignment - 1) / kAlignment * kAlignment;
  if (!options.use_error_feedback) return;
  for (Batch& batch : batches_) {
    batch.error = torch::zeros(
        {static_cast<std::int64_t>(batch.members.size()), batch.rows, batch.columns},
        bucket.buffer.options().dtype(c10::toRealValueType(bucket.buffer.scalar_type())));
  }
}

void PowerSgdBucket::take_memory(const Tensor& memory, const GradBucket& bucket) {
  first_message = memory.narrow(0, 0, p_elements_ + whole_elements_);
  second_message = memory.narrow(0, q_begin_, q_elements_);
  Pieces first(first_message), second(second_message);
  for (Batch& batch : batches_) {
    const auto count = static_cast<std::int64_t>(batch.members.size());
    batch.p = first.next({count, batch.rows, batch.rank});
    batch.q = second.next({count, batch.columns, batch.rank});
  }
  for (const std::size_t i : whole_)
    whole_copies_.push_back(first.next(as_matrix(bucket.gradients[i]).sizes()));
}

void PowerSgdBucket::begin(const std::vector<Tensor>& gradients) {
  for (Batch& batch : batches_) {
    std::vector<Tensor> matrices;
    for (const std::size_t i : batch.members) matrices.push_back(as_matrix(gradients[i]));
    if (options_.use_error_feedback) {
      batch.input = batch.error;  // holds the gradient plus the error, and finally the new error
      for (std::size_t j = 0; j < matrices.size(); ++j) {
        batch.input[static_cast<std::int64_t>(j)].add_(matrices[j]);
      }
    } else {
      batch.input = matrices.size() == 1 ? matrices[0].unsqueeze(0) : torch::stack(matrices);
    }
    // By QR, because a Q that became zero with its gradient must not stay zero.
    orthogonalize(batch.q, /*epsilon=*/0);
    at::bmm_out(batch.p, batch.input, batch.q);
  }
  for (std::size_t i = 0; i < whole_.size(); ++i)
    whole_copies_[i].copy_(as_matrix(gradients[whole_[i]]));
}

bool PowerSgdBucket::compute_q(const std::vector<Tensor>& gradients) {
  for (std::size_t i = 0; i < whole_.size(); ++i)
    as_matrix(gradients[whole_[i]]).copy_(whole_copies_[i]);
  const Tensor p = first_message.narrow(0, 0, p_elements_);
  if (is_on_device()) {
    is_finite_ = all_finite_on_device(p);
    former_q_ = second_message.clone();
  } else if (!all_finite(p)) {
    begin_anew(gradients);
    return false;
  }
  for (Batch& batch : batches_) {
    orthogonalize(batch.p, options_.orthogonalization_epsilon);
    at::bmm_out(batch.q, batch.input.transpose(1, 2), batch.p);
  }
  return true;
}

void PowerSgdBucket::finish(const std::vector<Tensor>& gradients) {
  // In float16 Q may overflow even if neither the gradients nor P do.
  if (is_on_device()) {
    is_finite_.logical_and_(all_finite_on_device(second_message));
    decompress(gradients);
    undo_on_device(gradients);
  } else if (all_finite(second_message)) {
    decompress(gradients);
  } else {
    begin_anew(gradients);
  }
}

// Gradients become P Q^T, errors the remainder.
void PowerSgdBucket::decompress(const std::vector<Tensor>& gradients) {
  for (Batch& batch : batches_) {
    const Tensor q_transposed = batch.q.transpose(1, 2);
    if (batch.members.size() == 1) {
      Tensor result = as_matrix(gradients[batch.members[0]]).unsqueeze(0);
      at::bmm_out(result, batch.p, q_transposed);
      if (batch.error.defined()) batch.error.sub_(result);
    } else {
      const Tensor results = at::bmm(batch.p, q_transposed);
      for (std::size_t j = 0; j < batch.members.size(); ++j) {
        as_matrix(gradients[batch.members[j]]).copy_(results[static_cast<std::int64_t>(j)]);
      }
      if (batch.error.defined()) batch.error.sub_(results);
    }
    batch.input.reset();
  }
}

// Does what begin_anew() does, if only the device knows whether it is necessary.
void PowerSgdBucket::undo_on_device(const std::vector<Tensor>& gradients) {
  second_message.copy_(torch::where(is_finite_, second_message, former_q_));
  for (Batch& batch : batches_) {
    if (batch.error.defined()) batch.error.masked_fill_(is_finite_.logical_not(), 0);
    for (const std::size_t i : batch.members) {
      gradients[i].masked_fill_(is_finite_.logical_not(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  former_q_.reset();
  is_finite_.reset();
}

// Resets the state: a single non-finite value would stay in Q and in the error forever.
void PowerSgdBucket::begin_anew(const std::vector<Tensor>& gradients) {
  for (Batch& batch : batches_) {
    if (batch.error.defined()) batch.error.zero_();
    batch.input.reset();
    for (const std::size_t i : batch.members) {
      gradients[i].fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (!all_finite(second_message)) q_is_known = false;
}

}  // namespace lockstep::parallel
