#include <lockstep/train/task/module_modes.h>

#include <lockstep/program/program.h>

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
  // The stage of a program has modules of its own.
  if (auto* const program = stage.as<ProgramImpl>()) program->follow_modes(whole);
}

}  // namespace lockstep::train
