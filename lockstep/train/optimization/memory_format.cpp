#include <lockstep/train/optimization/memory_format.h>

#include <algorithm>
#include <vector>

#include <lockstep/program/channels_last.h>
#include <lockstep/program/program.h>

namespace lockstep::train {

void to_channels_last(torch::nn::Module& module) {
  std::vector<torch::Tensor> converted;
  const auto convert = [&](torch::nn::Module& each) {
    auto* const net = each.as<ProgramImpl>();
    if (net == nullptr) return;
    net->to_channels_last();
    for (const torch::Tensor& parameter : net->parameters()) converted.push_back(parameter);
  };
  convert(module);
  for (const auto& each : module.modules(/*include_self=*/false)) convert(*each);
  for (torch::Tensor& parameter : module.parameters()) {
    const bool is_done =
        std::any_of(converted.begin(), converted.end(),
                    [&](const torch::Tensor& other) { return other.is_same(parameter); });
    if (parameter.dim() == 4 && !is_done) program::give_channels_last(parameter);
  }
}

}  // namespace lockstep::train
