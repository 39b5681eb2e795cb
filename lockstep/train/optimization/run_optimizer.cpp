#include <lockstep/train/optimization/run_optimizer.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {
namespace {

// The groups' learning rates in their options.
class GroupRates {
 public:
  explicit GroupRates(const OptimizerGroups::Part& part) : indices_(part.indices) {
    for (const ParameterGroup& group : part.groups) lrs_.push_back(lr_of(group.options));
  }
  template <class AnyOptimizer>
  void scale(const std::vector<double>& factors, AnyOptimizer& optimizer) const {
    for (std::size_t g = 0; g < lrs_.size(); ++g) {
      optimizer.set_lr(g, lrs_[g] * factors.at(indices_[g]));
    }
  }

 private:
  std::vector<std::size_t> indices_;
  std::vector<double> lrs_;
};

class ReplicatedOptimizer final : public RunOptimizer {
 public:
  ReplicatedOptimizer(OptimizerGroups::Part part, ProcessGroup group)
      : rates_(part), optimizer_(std::move(part.groups)), group_(std::move(group)) {}

  void step() override { optimizer_.step(); }
  void zero_grad() override { optimizer_.zero_grad(); }
  Tensors gradients() override { return optimizer_.gradients(); }
  Tensors gradients_of(const Tensors& parameters) override {
    Tensors gradients;
    for (const torch::Tensor& parameter : parameters) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    return gradients;
  }
  void clip_grad_norm(double max_norm) override {
    clip_grad_norm_(optimizer_.parameters(), max_norm);
  }
  void step_unless(const torch::Tensor& found_inf) override { optimizer_.step_unless(found_inf); }
  void agree_through(GradScaler&) override {}  // gradients are equal on all ranks
  void set_capturable(bool on) override { optimizer_.set_capturable(on); }
  bool can_skip_on_device() override {
    if (!optimizer_.is_capturable() && could_be_capturable()) optimizer_.set_capturable(true);
    return optimizer_.is_capturable();
  }
  double lr() const override { return optimizer_.lr(); }
  void set_lr(double lr) override { optimizer_.set_lr(lr); }
  void scale_lrs(const std::vector<double>& factors) override { rates_.scale(factors, optimizer_); }
  void set_momentum(double momentum) override { optimizer_.set_momentum(momentum); }
  NamedTensors state() override { return optimizer_.state(); }

  void load_state(const NamedTensors& state) override {
    const NamedTensors own = optimizer_.state();
    if (group_.rank() == 0) copy_state(state, own, "optimizer state");
    if (group_.size() == 1) return;
    const torch::Device device = optimizer_.parameters().front().device();
    for (const auto& [name, tensor] : own) {
      torch::Tensor on_device = tensor.to(device);  // step counts are on the CPU
      group_.broadcast(on_device, 0);
      if (!on_device.is_same(tensor)) tensor.copy_(on_device);
    }
  }

 private:
  // On a CPU, capturable steps would give equal results but cost more, and there is no device to
  // wait for.
  bool could_be_capturable() const {
    const Tensors gradients = optimizer_.gradients();
    return !gradients.empty() &&
           std::all_of(gradients.begin(), gradients.end(), [&](const torch::Tensor& gradient) {
             return !gradient.is_cpu() && gradient.device() == gradients.front().device() &&
                    !gradient.is_sparse();
           });
  }

  const GroupRates rates_;
  Optimizer optimizer_;
  ProcessGroup group_;
};

class ShardedOptimizer final : public RunOptimizer {
 public:
  ShardedOptimizer(DdpCore& core, const torch::nn::Module& module, OptimizerGroups::Part part)
      : rates_(part),
        optimizer_(core, module, std::move(part.groups)),
        is_on_device_(!core.reducer()->grad_buckets().front().buffer.is_cpu()) {}

  void step() override { optimizer_.step(); }
  void zero_grad() override { optimizer_.zero_grad(); }
  Tensors gradients() override { return optimizer_.gradients(); }
  Tensors gradients_of(const Tensors& parameters) override {
    return optimizer_.gradients_of(parameters);
  }
  void clip_grad_norm(double max_norm) override { optimizer_.clip_grad_norm(max_norm); }
  void agree_through(GradScaler& scaler) override {
    scaler.reduce_found_inf_with(
        [this](torch::Tensor& found) { optimizer_.reduce_found_inf(found); });
  }
  // Parameters on a device are never in memory that ranks share.
  bool can_skip_on_device() override { return is_on_device_; }
  void step_unless(const torch::Tensor& found_inf) override { optimizer_.step_unless(found_inf); }
  double communication_seconds() const override { return optimizer_.communication_seconds(); }
  double lr() const override { return optimizer_.lr(); }
  void set_lr(double lr) override { optimizer_.set_lr(lr); }
  void scale_lrs(const std::vector<double>& factors) override { rates_.scale(factors, optimizer_); }
  void set_momentum(double momentum) override { optimizer_.set_momentum(momentum); }
  NamedTensors state() override { return optimizer_.state_dict(); }
  void load_state(const NamedTensors& state) override { optimizer_.load_state_dict(state); }

 private:
  const GroupRates rates_;
  ZeroRedundancyOptimizer optimizer_;
  const bool is_on_device_;
};

}  // namespace

void RunOptimizer::step_unless(const torch::Tensor&) {
  throw InternalError("Trainer: an optimizer that cannot skip a step on the device was told to");
}

void RunOptimizer::set_capturable(bool on) {
  if (!on) return;
  throw ConfigError(
      "Trainer: this optimizer counts its steps on the host, so that no graph can replay them; use "
      "strategy ddp or single");
}

std::unique_ptr<RunOptimizer> make_replicated_optimizer(const NamedTensors& parameters,
                                                        const OptimizerGroups& groups,
                                                        ProcessGroup group) {
  return std::make_unique<ReplicatedOptimizer>(groups.part_of(parameters), std::move(group));
}

std::unique_ptr<RunOptimizer> make_sharded_optimizer(DdpCore& core, const torch::nn::Module& module,
                                                     const NamedTensors& parameters,
                                                     const OptimizerGroups& groups) {
  return std::make_unique<ShardedOptimizer>(core, module, groups.part_of(parameters));
}

}  // namespace lockstep
