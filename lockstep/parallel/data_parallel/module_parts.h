// The parts of a module, in the order of registration.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::detail::data_parallel {

/// A module and all its descendants, in the order of Module::apply: a module before its children. A
/// module that is registered twice is listed twice, and so are tied parameters. Refers to the
/// modules and holds the tensors.
struct ModuleParts {
  std::vector<torch::nn::Module*> modules{};
  std::vector<torch::Tensor> parameters{};  ///< the defined ones
  std::vector<torch::Tensor> buffers{};     ///< the defined ones

  /// Whether these are the same objects as the parts of `other`.
  bool same_as(const ModuleParts& other) const;
};

ModuleParts parts_of(torch::nn::Module& module);

/// Throws ConfigError unless `parts`, the parts of `module`, are on `device`, the first device of a
/// DataParallel.
void require_place(const torch::nn::Module& module, const ModuleParts& parts, torch::Device device);

/// The name of parts_of(module).parameters[index], for messages.
std::string parameter_name(const torch::nn::Module& module, std::size_t index);
/// The name of parts_of(module).buffers[index].
std::string buffer_name(const torch::nn::Module& module, std::size_t index);

}  // namespace lockstep::detail::data_parallel
