// Which optimizers step which parameters of a task: what its configure_optimizers() returns.
//
// One optimizer with groups: no weight decay for biases and norms.
//
//   std::vector<ConfiguredOptimizer> configure_optimizers() override {
//     return {{.groups = no_decay_on_norms_and_biases(*net_, AdamWOptions{.lr = 3e-4})}};
//   }
//
// Two optimizers that take turns, as for a GAN: a critic's steps first, then one of the generator.
//
//     return {{.groups = {{critic_parameters, AdamOptions{.lr = 4e-4}}}, .frequency = 5},
//             {.groups = {{generator_parameters, AdamOptions{.lr = 1e-4}}}}};
//
// One of LibTorch's optimizers:
//
//     return {torch_optimizer<torch::optim::RMSprop>(trainable_parameters(*net_),
//                                                    torch::optim::RMSpropOptions(1e-3))};
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/parameter_groups.h>

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// A step's place in the run.
struct LOCKSTEP_API ScheduleProgress {
  std::int64_t step = 0;  ///< steps of all optimizers before this one, in all epochs
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 1;  ///< number of steps in max_epochs epochs
};

/// The factor applied to a group's learning rate. It must depend on its argument alone, so that a
/// resumed run continues exactly. schedule_function() makes one of ScheduleOptions.
using LearningRateFactor = std::function<double(const ScheduleProgress&)>;

/// An optimizer that a program provides itself, such as one of torch::optim or a new algorithm.
/// Every rank has one, with the same parameters and, at step(), the same gradients: the means over
/// the ranks, clipped and unscaled. The Trainer zeroes the gradients. Used on one thread.
class LOCKSTEP_API OwnOptimizer {
 public:
  virtual ~OwnOptimizer() = default;
  /// Steps the parameters that have a gradient.
  virtual void step() = 0;
  /// The learning rate in reports: the first one, if there are several.
  virtual double lr() const = 0;
  /// Sets each learning rate to `factor` times its initial one.
  virtual void scale_lr(double factor) = 0;
  /// All that step() remembers, for a checkpoint. Names and shapes may change from step to step.
  virtual NamedTensors state() = 0;
  /// Loads what state() returned, in the same order, on any device.
  virtual void load_state(const NamedTensors& state) = 0;
};

/// Makes an optimizer of `parameters`, which are in their final place.
using MakeOwnOptimizer =
    std::function<std::unique_ptr<OwnOptimizer>(const NamedTensors& parameters)>;

/// One optimizer of a run.
struct LOCKSTEP_API ConfiguredOptimizer {
  /// The parameters with their options, all of one optimizer; see parameter_groups.h.
  std::vector<ParameterGroup> groups = {};
  /// For each group, the factor of its learning rate; an empty function stands for
  /// TrainerOptions::schedule, and an empty list for that in all groups.
  std::vector<LearningRateFactor> schedules = {};
  /// The number of consecutive steps that this optimizer takes before the next one's turn, as in
  /// Lightning 1. Irrelevant for a single optimizer.
  std::int64_t frequency = 1;
  /// If given, makes the optimizer of all parameters of the groups, whose options are then ignored.
  MakeOwnOptimizer make = {};
};

/// All trainable parameters of `module` with `options`, in two groups: those with fewer than two
/// dimensions, which are biases and the weights of normalisations, have no weight decay. This is
/// nanoGPT's rule. By it, the weights of embeddings, which have two dimensions, do decay. A group
/// without parameters is left out.
LOCKSTEP_API std::vector<ParameterGroup> no_decay_on_norms_and_biases(
    const torch::nn::Module& module, const OptimizerOptions& options);

/// The trainable parameters of `module` whose names begin with `prefix`, such as "critic.".
LOCKSTEP_API NamedTensors parameters_with_prefix(const torch::nn::Module& module,
                                                 const std::string& prefix);

/// An optimizer of the program's own for `parameters`.
LOCKSTEP_API ConfiguredOptimizer own_optimizer(NamedTensors parameters, MakeOwnOptimizer make);

/// Adapts an optimizer of LibTorch. Checkpoints hold what its save() writes, which load() reads.
LOCKSTEP_API std::unique_ptr<OwnOptimizer> adapted(
    std::unique_ptr<torch::optim::Optimizer> optimizer);

/// An optimizer of type O, such as torch::optim::RMSprop, for `parameters`.
template <class O, class Options>
ConfiguredOptimizer torch_optimizer(NamedTensors parameters, const Options& options) {
  return own_optimizer(std::move(parameters), [options](const NamedTensors& own) {
    std::vector<torch::Tensor> tensors;
    for (const auto& [name, tensor] : own) tensors.push_back(tensor);
    return adapted(std::make_unique<O>(std::move(tensors), options));
  });
}

}  // namespace lockstep
