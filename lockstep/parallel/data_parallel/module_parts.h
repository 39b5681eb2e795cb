// The parts of a module, in the order of registration.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>

namespace lockstep::detail::data_parallel {

/// A module and all its descendants, in the order of Module::apply: a module before its children. A
/// module that is registered twice is listed twice, and so are tied parameters. Refers to the
/// modules and holds the tensors.
struct LOCKSTEP_API ModuleParts {
  std::vector<torch::nn::Module*> modules{};
  std::vector<torch::Tensor> parameters{};  ///< the defined ones
  std::vector<torch::Tensor> buffers{};     ///< the defined ones

  /// Whether these are the same objects as the parts of `other`.
  bool same_as(const ModuleParts& other) const;
};

LOCKSTEP_API ModuleParts parts_of(torch::nn::Module& module);

/// Throws ConfigError unless `parts`, the parts of `module`, are on `device`, the first device of a
/// DataParallel.
LOCKSTEP_API void require_place(const torch::nn::Module& module, const ModuleParts& parts,
                                torch::Device device);

/// The name of parts_of(module).parameters[index], for messages.
LOCKSTEP_API std::string parameter_name(const torch::nn::Module& module, std::size_t index);
/// The name of parts_of(module).buffers[index].
LOCKSTEP_API std::string buffer_name(const torch::nn::Module& module, std::size_t index);

}  // namespace lockstep::detail::data_parallel
