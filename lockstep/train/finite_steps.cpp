#include <lockstep/train/finite_steps.h>

#include <cmath>
#include <limits>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/optim/clip_grad.h>

namespace lockstep::train {
namespace {

constexpr const char* kAdvice =
    "; lower the learning rate, clip the gradients, or let TrainerOptions::on_nan skip such steps";

// The largest magnitude, because the 2-norm of large finite gradients may be infinite.
bool are_finite(const Tensors& gradients) {
  const torch::Tensor largest = get_total_norm(gradients, std::numeric_limits<double>::infinity());
  return std::isfinite(largest.item<double>());
}

// "nan" or "inf"; the sign of the bits of NaN means nothing.
std::string loss_text(double loss) { return std::isnan(loss) ? "nan" : lockstep::str(loss); }

}  // namespace

// A forward changes buffers, such as running statistics, before its loss is known.
void FiniteSteps::begin_step(const torch::nn::Module& module) {
  buffers_.clear();
  for (const torch::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) buffers_.push_back({.buffer = buffer, .before = buffer.detach().clone()});
  }
}

bool FiniteSteps::allows(const Step& step, ProcessGroup& group) {
  const std::string problem = problem_in(step, group);
  if (problem.empty()) return true;
  if (policy_ == OnNan::kStop) {
    throw Error(lockstep::str("Trainer: ", problem, " in ", step.place,
                              "; the run stops before the update of that step", kAdvice));
  }
  if (skipped_++ == 0 && group.rank() == 0) {
    log_warning("Trainer: ", problem, " in ", step.place,
                "; the update of that step is skipped, as are those of later steps of this kind");
  }
  const torch::NoGradGuard no_grad;
  for (const SavedBuffer& saved : buffers_) saved.buffer.detach().copy_(saved.before);
  return false;
}

std::string FiniteSteps::problem_in(const Step& step, ProcessGroup& group) {
  const double loss = step.loss.item<double>();
  const bool loss_is_finite = std::isfinite(loss);
  // On every rank, whatever its loss: a sharded optimizer makes its gradients collectively.
  const bool gradients_are_finite = !step.gradients || are_finite(step.gradients());
  const bool is_sound = loss_is_finite && gradients_are_finite;
  // A loss is named before a gradient, which follows from it on all ranks. The first rank wins.
  const std::int64_t size = group.size();
  std::int64_t found = is_sound ? 0 : size - group.rank() + (loss_is_finite ? 0 : size);
  if (size > 1) {
    const SecondsScope scope(communication_seconds_);
    torch::Tensor all = torch::tensor({found}, torch::kInt64).to(device_);
    group.all_reduce(all, ReduceOp::kMax);
    found = all.item<std::int64_t>();
  }
  if (found == 0) return {};
  const bool is_loss = found > size;
  const std::int64_t rank = size - (is_loss ? found - size : found);
  const std::string where = size == 1 ? std::string() : lockstep::str(" of rank ", rank);
  if (!is_loss) return lockstep::str("a gradient", where, " is not finite");
  if (rank == group.rank()) return lockstep::str("the loss", where, " is ", loss_text(loss));
  return lockstep::str("the loss", where, " is not finite");
}

void FiniteSteps::note(double loss, const std::string& place) {
  if (policy_ != OnNan::kWarn || warned_ || std::isfinite(loss)) return;
  warned_ = true;
  log_warning("Trainer: the loss is ", loss_text(loss), " in ", place, "; the run continues",
              kAdvice);
}

}  // namespace lockstep::train
