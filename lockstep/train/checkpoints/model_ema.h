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

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// Begins the names of the averaged parameters in a training state (see save_checkpoint()).
inline constexpr std::string_view kAverageState = "ema.";

/// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): the first update copies
/// the parameters, each later one makes the average decay * average + (1 - decay) * parameter, in
/// one fused operation over all floating-point parameters. Buffers are not averaged.
///
/// Holds the parameters of the module, each once, and a copy of their memory. Every rank that has
/// the same parameters and updates in the same steps has the same average, bit for bit. Not
/// thread-safe.
class ModelEma {
 public:
  /// Make it when the module is on its device. ConfigError unless `decay` is from 0 to 1.
  ModelEma(const torch::nn::Module& module, double decay);

  void update();
  std::int64_t updates() const { return updates_; }

  /// The averages under the parameters' names with kAverageState before them, to save and to load.
  /// Shares memory.
  StateDict state() const;
  /// Takes over how many updates a loaded state() has had; 0: the next update copies again.
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  friend class AveragedWeights;

  void follow_devices();

  double decay_;
  std::vector<std::string> names_;
  Tensors parameters_;
  Tensors averages_;
  std::int64_t updates_ = 0;
};

/// While it lives, the parameters of the module have the memory of the average. Nothing is copied,
/// so that ranks which share the memory of their parameters do not disturb each other, and neither
/// an optimizer's step nor a backward may come in between. Does nothing for a null pointer and for
/// an average without updates.
class AveragedWeights {
 public:
  explicit AveragedWeights(ModelEma* ema);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  ModelEma* ema_;
  Tensors own_;  // the memory of the parameters
};

}  // namespace lockstep
