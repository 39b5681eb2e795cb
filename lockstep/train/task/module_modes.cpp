#include <lockstep/train/task/module_modes.h>

namespace lockstep::train {

void ModuleModes::keep(torch::nn::Module& module) {
  modes_.emplace_back(&module, module.is_training());
  for (const auto& child : module.children()) keep(*child);
}

void ModuleModes::restore() const {
  for (const auto& [module, was_training] : modes_) module->train(was_training);
}

void follow_mode(torch::nn::Module& stage, torch::nn::Module& whole) {
  const ModuleModes modes(whole);
  stage.train(whole.is_training());
  modes.restore();
}

}  // namespace lockstep::train
