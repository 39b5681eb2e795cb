// The training and evaluation modes of a module and its descendants. Internal to lockstep/train.
#pragma once

#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::train {

/// The modes of a module and its descendants, which restore() sets again. Modules must not be added
/// or removed in between.
class ModuleModes {
 public:
  explicit ModuleModes(torch::nn::Module& module) { keep(module); }
  void restore() const;

 private:
  void keep(torch::nn::Module& module);

  // A module precedes its children, because its train() also sets theirs.
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

/// While it lives, the module and its descendants are in eval mode. Each has its own mode again
/// afterwards, like Lightning's evaluation loop.
class EvalScope {
 public:
  explicit EvalScope(torch::nn::Module& module) : modes_(module) { module.eval(); }
  ~EvalScope() { modes_.restore(); }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  const ModuleModes modes_;
};

/// `stage` computes a part of `whole` with its submodules. Those keep their modes, and the modules
/// that `stage` has in addition, such as a container of its own, get the mode of `whole`.
void follow_mode(torch::nn::Module& stage, torch::nn::Module& whole);

}  // namespace lockstep::train
