// The exponential moving average of a model's weights, which often generalises better than the
// weights themselves.
//
//   lockstep::ModelEma ema(*net, /*decay=*/0.999);
//   for (...) { ...; optimizer.step(); ema.update(); }
//   {
//     const lockstep::AveragedWeights averaged(&ema);   // net computes with the average
//     evaluate(net);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// Prefix of the averaged parameters in a training state (see save_checkpoint()).
inline constexpr std::string_view kAverageState = "ema.";

/// Works like torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): the first
/// update copies the parameters, and each later one sets the average to decay * average + (1 -
/// decay) * parameter, in one fused operation over all floating-point and complex parameters.
/// The running means and variances of batch normalisation are averaged in the same way, so that the
/// statistics belong to the averaged weights. Other buffers are not averaged.
///
/// Holds the module's parameters and running statistics, each once, and averages that take as much
/// memory again. Ranks with equal parameters that update in the same steps have bitwise equal
/// averages of them. Each rank averages its own running statistics: where ranks must agree,
/// broadcast the module's buffers during the lifetime of an AveragedWeights, as the Trainer and
/// DistributedDataParallel::forward() do. Not thread-safe.
class LOCKSTEP_API ModelEma {
 public:
  /// Construct it once the module is on its device. Throws ConfigError unless 0 <= `decay` <= 1.
  ModelEma(const torch::nn::Module& module, double decay);

  /// Adds the current parameters and running statistics to the average. Call it after each
  /// optimizer step. Throws ConfigError, with nothing changed, for one whose type or shape has
  /// changed since construction; one on another device takes its average along.
  void update();
  std::int64_t updates() const { return updates_; }

  /// The averages, for saving and loading, under the names of the parameters and running
  /// statistics, prefixed with kAverageState. The tensors share this object's memory.
  StateDict state() const;
  /// Call it after loading a state(): sets the number of updates that went into that state. With 0,
  /// the next update copies the parameters again.
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  friend class AveragedWeights;

  void require_alike() const;
  void follow_devices();

  double decay_;
  std::vector<std::string> names_;
  Tensors parameters_;  // and, behind them, running statistics
  std::size_t first_statistic_ = 0;
  Tensors averages_;
  std::int64_t updates_ = 0;
};

/// During its lifetime, the module's parameters use the memory of the average. They are not copied,
/// so ranks that share the memory of their parameters do not disturb each other. The module's
/// running statistics have the values of the average, and what is written to them, as by a
/// broadcast or by a forward() in training mode, becomes the average. No optimizer step or backward
/// may run meanwhile. Does nothing for a null pointer and for an average without updates. The
/// constructor throws ConfigError like ModelEma::update().
class LOCKSTEP_API AveragedWeights {
 public:
  explicit AveragedWeights(ModelEma* ema);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  ModelEma* ema_;
  Tensors own_;  // the parameters' own memory, and copies of the running statistics
};

}  // namespace lockstep
