#include <lockstep/train/strategies/own_run_optimizer.h>

#include <charconv>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/train/strategies/named_exchange.h>

namespace lockstep::train {
namespace {

// A checkpoint's file has an order of its own. The names therefore begin with the tensors' places.
NamedTensors numbered(const NamedTensors& state) {
  NamedTensors result;
  for (const auto& [name, tensor] : state) {
    result.emplace_back(lockstep::str(result.size(), '.', name), tensor);
  }
  return result;
}

// The inverse of numbered(), for tensors in any order.
NamedTensors in_order(const NamedTensors& numbered) {
  NamedTensors result(numbered.size());
  for (const auto& [name, tensor] : numbered) {
    std::size_t place = result.size();
    const char* const end = name.data() + name.size();
    const auto [dot, error] = std::from_chars(name.data(), end, place);
    if (error != std::errc() || dot == end || *dot != '.' || place >= result.size() ||
        result[place].second.defined()) {
      throw CheckpointError("the state of an optimizer of the program's own has a tensor '" + name +
                            "', whose name does not begin with its place");
    }
    result[place] = {name.substr(static_cast<std::size_t>(dot - name.data()) + 1), tensor};
  }
  return result;
}

class OwnRunOptimizer final : public RunOptimizer {
 public:
  OwnRunOptimizer(const NamedTensors& parameters, const MakeOwnOptimizer& make, ProcessGroup group,
                  torch::Device device)
      : group_(std::move(group)), device_(device), optimizer_(make(parameters)) {
    if (!optimizer_) {
      throw ConfigError("Trainer: configure_optimizers(): an optimizer's function made nothing");
    }
    for (const auto& [name, parameter] : parameters) parameters_.push_back(parameter);
  }

  void step() override { optimizer_->step(); }
  // In place, because gradients may be views into a reducer's buckets.
  void zero_grad() override {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& gradient : gradients()) gradient.zero_();
  }
  Tensors gradients() override { return gradients_of(parameters_); }
  Tensors gradients_of(const Tensors& parameters) override {
    Tensors gradients;
    for (const torch::Tensor& parameter : parameters) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    return gradients;
  }
  void clip_grad_norm(double max_norm) override { clip_grad_norm_(parameters_, max_norm); }
  void agree_through(GradScaler&) override {}  // gradients are equal on all ranks
  void set_capturable(bool on) override {
    if (!on) return;
    throw ConfigError(
        "Trainer: cuda_graph cannot record the step of an optimizer of the program's own "
        "(configure_optimizers()); remove one of them");
  }

  double lr() const override { return optimizer_->lr(); }
  void set_lr(double) override {
    throw InternalError("Trainer: an optimizer of the program's own was given a learning rate");
  }
  void scale_lrs(const std::vector<double>& factors) override {
    optimizer_->scale_lr(factors.at(0));
  }
  void set_momentum(double) override {
    throw InternalError("Trainer: an optimizer of the program's own was given a momentum");
  }

  NamedTensors state() override { return numbered(optimizer_->state()); }
  void load_state(const NamedTensors& state) override {
    std::vector<NamedTensors> rank_states;
    if (group_.rank() == 0) {
      rank_states.assign(static_cast<std::size_t>(group_.size()), in_order(state));
    }
    optimizer_->load_state(scatter_named(rank_states, group_, device_));
  }

 private:
  ProcessGroup group_;
  const torch::Device device_;
  Tensors parameters_;
  std::unique_ptr<OwnOptimizer> optimizer_;
};

}  // namespace

std::unique_ptr<RunOptimizer> run_own_optimizer(const NamedTensors& parameters,
                                                const MakeOwnOptimizer& make, ProcessGroup group,
                                                torch::Device device) {
  return std::make_unique<OwnRunOptimizer>(parameters, make, std::move(group), device);
}

}  // namespace lockstep::train
