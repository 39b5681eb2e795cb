#include <lockstep/parallel/mean_over_ranks.h>

#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {

MeanOverRanks::MeanOverRanks(ProcessGroup group)
    : group_(std::move(group)), total_(group_.allocate({}, torch::kFloat64)) {}

void MeanOverRanks::start(const torch::Tensor& count) {
  if (!count.defined() || count.numel() != 1 || count.is_complex()) {
    throw ConfigError(lockstep::str(
        "MeanOverRanks: start() needs the number of valid elements, a tensor of one element; got ",
        count.defined() ? lockstep::str(count.scalar_type(), ' ', count.sizes())
                        : "an undefined tensor",
        "; use y.ne(padding).sum()"));
  }
  const torch::NoGradGuard no_grad;
  finish();
  total_.copy_(count.detach().view(at::IntArrayRef()));
  work_ = group_.async_all_reduce(total_);
}

void MeanOverRanks::start(std::int64_t count) {
  start(torch::scalar_tensor(count, torch::TensorOptions(torch::kInt64)));
}

// Waits for the sum that is under way, if any.
void MeanOverRanks::finish() {
  if (!work_) return;
  std::exchange(work_, nullptr)->wait();
  const torch::NoGradGuard no_grad;
  const torch::Tensor divisor = torch::where(total_.eq(0), torch::ones_like(total_), total_);
  scale_ = divisor.reciprocal().mul(group_.size());
}

torch::Tensor MeanOverRanks::of(const torch::Tensor& sum) {
  finish();
  if (!scale_.defined()) {
    throw ConfigError(
        "MeanOverRanks: of() needs the number of valid elements; call start() before the forward");
  }
  const auto type = c10::promoteTypes(sum.scalar_type(), torch::kFloat32);
  return sum.to(type) * scale_.to(sum.device(), type);
}

}  // namespace lockstep
