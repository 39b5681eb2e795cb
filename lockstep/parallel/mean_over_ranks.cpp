#include <lockstep/parallel/mean_over_ranks.h>

#include <limits>
#include <string>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {

namespace {

// What is added up over the ranks: their counts, and the number of ranks whose count was refused.
constexpr std::int64_t kCounts = 0;
constexpr std::int64_t kRefusals = 1;

std::string refusal_of(const torch::Tensor& count) {
  if (count.defined() && count.numel() == 1 && !count.is_complex()) return {};
  return lockstep::str(
      "MeanOverRanks: start() needs the number of valid elements, a tensor of one element; got ",
      count.defined() ? lockstep::str(count.scalar_type(), ' ', count.sizes())
                      : "an undefined tensor",
      "; use y.ne(padding).sum()");
}

}  // namespace

MeanOverRanks::MeanOverRanks(ProcessGroup group)
    : group_(std::move(group)), sums_(group_.allocate({2}, torch::kFloat64)) {}

// A rank that refuses its count takes part in the sum, so that the others do not wait for it in
// vain. It waits for them, because a rank that has left would not complete the sum.
void MeanOverRanks::start(const torch::Tensor& count) {
  const std::string refusal = refusal_of(count);
  const torch::NoGradGuard no_grad;
  finish();
  refusals_ = 0;
  sums_.zero_();
  if (refusal.empty()) {
    sums_[kCounts].copy_(count.detach().view(at::IntArrayRef()));
  } else {
    sums_[kRefusals].fill_(1);
  }
  work_ = group_.async_all_reduce(sums_);
  if (refusal.empty()) return;
  finish();
  throw ConfigError(refusal);
}

void MeanOverRanks::start(std::int64_t count) {
  start(torch::scalar_tensor(count, torch::TensorOptions(torch::kInt64)));
}

// Waits for the sum that is under way, if any. Reading a device's number of refusals would make the
// host wait, so there they make the scale NaN.
void MeanOverRanks::finish() {
  if (!work_) return;
  std::exchange(work_, nullptr)->wait();
  const torch::NoGradGuard no_grad;
  const torch::Tensor total = sums_[kCounts], refusals = sums_[kRefusals];
  const torch::Tensor divisor = torch::where(total.eq(0), torch::ones_like(total), total);
  scale_ = divisor.reciprocal().mul(group_.size());
  if (sums_.is_cpu()) {
    refusals_ = refusals.item<double>();
  } else {
    scale_.masked_fill_(refusals.gt(0), std::numeric_limits<double>::quiet_NaN());
  }
}

torch::Tensor MeanOverRanks::of(const torch::Tensor& sum) {
  finish();
  if (!scale_.defined()) {
    throw ConfigError(
        "MeanOverRanks: of() needs the number of valid elements; call start() before the forward");
  }
  if (refusals_ > 0) {
    throw ConfigError(lockstep::str("MeanOverRanks: start() refused the count of ", refusals_,
                                    " of ", group_.size(),
                                    " ranks; the errors of these ranks say why"));
  }
  const auto type = c10::promoteTypes(sum.scalar_type(), torch::kFloat32);
  return sum.to(type) * scale_.to(sum.device(), type);
}

}  // namespace lockstep
