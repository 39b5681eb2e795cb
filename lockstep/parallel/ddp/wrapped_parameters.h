// Detects parameters that a module trains but its wrapper does not know.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/parallel/ddp/bucket_memory.h>

namespace lockstep::detail {

/// Compares a module's current parameters with those that were wrapped. A parameter that was
/// unfrozen or registered later has no bucket: each rank would train it on its own gradient. Holds
/// a reference to `module`, which must outlive all calls. Not thread-safe.
class WrappedParameters {
 public:
  WrappedParameters(const torch::nn::Module& module, const std::vector<NamedParameter>& wrapped);

  /// Returns an empty string if every parameter that requires a gradient is wrapped; otherwise a
  /// text that names one that is not, with the cause and the remedy. Called at each forward: as
  /// long as nothing was registered, it allocates nothing per parameter and does not search.
  std::string why_not_all();

 private:
  struct Known {
    torch::Tensor parameter;  ///< held, so that no other tensor takes its address
    bool wrapped;
  };
  bool as_known(const torch::nn::Module& module, std::size_t& next) const;
  void look_again(const torch::nn::Module& module);
  bool knows(const torch::Tensor& parameter) const;
  bool has_wrapped(const torch::Tensor& parameter) const;

  const torch::nn::Module* module_;
  std::unordered_map<const torch::TensorImpl*, torch::Tensor> wrapped_;
  std::vector<Known>
      known_;  // in the order of registration; a tied parameter occurs once per registration
};

}  // namespace lockstep::detail
