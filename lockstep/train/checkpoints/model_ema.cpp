#include <lockstep/train/checkpoints/model_ema.h>

#include <cstddef>
#include <unordered_set>

#include <ATen/ops/_foreach_lerp.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/tensor_kind.h>

namespace lockstep {
namespace {

// Whether a buffer of this name holds what batch normalisation computes in evaluation mode.
bool is_running_statistic(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  return last == "running_mean" || last == "running_var";
}

}  // namespace

ModelEma::ModelEma(const torch::nn::Module& module, double decay) : decay_(decay) {
  OptionCheck("ModelEma").in_range("decay", decay, 0, 1);
  const torch::NoGradGuard no_grad;
  std::unordered_set<const torch::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    names_.push_back(name);
    parameters_.push_back(tensor);
    averages_.push_back(tensor.detach().clone());
  };
  for (const auto& parameter : module.named_parameters()) add(parameter.key(), parameter.value());
  first_statistic_ = parameters_.size();
  for (const auto& buffer : module.named_buffers()) {
    if (is_running_statistic(buffer.key())) add(buffer.key(), buffer.value());
  }
}

// Otherwise an average would be broadcast to another shape, or give a parameter another type.
void ModelEma::require_alike() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor &average = averages_[i], &parameter = parameters_[i];
    if (average.sizes() == parameter.sizes() && average.scalar_type() == parameter.scalar_type()) {
      continue;
    }
    throw ConfigError(lockstep::str(
        "ModelEma: ", i < first_statistic_ ? "parameter" : "buffer", " '", names_[i], "' was ",
        optim::kind_text(average), " when the average was constructed and is now ",
        optim::kind_text(parameter), "; construct it after changing the module"));
  }
}

// A strategy may have moved a parameter to another device since the average was created.
void ModelEma::follow_devices() {
  require_alike();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages_[i] = averages_[i].to(parameters_[i].device());
  }
}

void ModelEma::update() {
  const torch::NoGradGuard no_grad;
  follow_devices();
  Tensors averages, parameters;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool is_averaged = parameters_[i].is_floating_point() || parameters_[i].is_complex();
    if (updates_ == 0 || !is_averaged) {
      averages_[i].copy_(parameters_[i]);
    } else {
      averages.push_back(averages_[i]);
      parameters.push_back(parameters_[i].detach());
    }
  }
  ++updates_;
  if (!averages.empty()) at::_foreach_lerp_(averages, parameters, 1 - decay_);
}

StateDict ModelEma::state() const {
  StateDict state;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    state.emplace_back(std::string(kAverageState) + names_[i], averages_[i]);
  }
  return state;
}

AveragedWeights::AveragedWeights(ModelEma* ema)
    : ema_(ema != nullptr && ema->updates() > 0 ? ema : nullptr) {
  if (ema_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  ema_->follow_devices();  // a resumed run evaluates before its first update
  for (std::size_t i = 0; i < ema_->parameters_.size(); ++i) {
    torch::Tensor& tensor = ema_->parameters_[i];
    if (i < ema_->first_statistic_) {
      own_.push_back(tensor.detach());
      tensor.set_data(ema_->averages_[i]);
    } else {  // DistributedDataParallel chooses the memory of buffers
      own_.push_back(tensor.detach().clone());
      tensor.copy_(ema_->averages_[i]);
    }
  }
}

AveragedWeights::~AveragedWeights() {
  if (ema_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    torch::Tensor& tensor = ema_->parameters_[i];
    if (i < ema_->first_statistic_) {
      tensor.set_data(own_[i]);
    } else {
      ema_->averages_[i].copy_(tensor);
      tensor.copy_(own_[i]);
    }
  }
}

}  // namespace lockstep
