#include <lockstep/parallel/pipeline/stage_module.h>

namespace lockstep::pipeline {
namespace {

StageModule::Forward forward_of_any(torch::nn::AnyModule module) {
  return [module = std::move(module)](const Tensors& inputs) mutable -> Tensors {
    switch (inputs.size()) {
      case 1:
        return {module.forward(inputs[0])};
      case 2:
        return {module.forward(inputs[0], inputs[1])};
      case 3:
        return {module.forward(inputs[0], inputs[1], inputs[2])};
      default:
        throw ConfigError(
            str("a stage that is an AnyModule takes one to three tensors, got ", inputs.size()));
    }
  };
}

}  // namespace

StageModule::StageModule(torch::nn::AnyModule module)
    : StageModule(module.ptr(), forward_of_any(module)) {}

StageModule::StageModule(std::shared_ptr<torch::nn::Module> module, Forward forward,
                         bool has_whole_backward)
    : module_(std::move(module)),
      forward_(std::move(forward)),
      has_whole_backward_(has_whole_backward) {
  if (!module_ || !forward_) throw ConfigError("a stage of a pipeline has no module");
}

}  // namespace lockstep::pipeline
