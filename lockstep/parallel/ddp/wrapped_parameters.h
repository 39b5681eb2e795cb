// Notices parameters that a module trains and its wrapper does not know.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/parallel/ddp/bucket_memory.h>

namespace lockstep {

/// Compares the parameters that a module has now with those that were wrapped. A parameter that was
/// unfrozen or registered in the meantime has no bucket: each rank would train it on its own
/// gradient. Refers to `module`, which must live as long as it is asked. Not thread-safe.
class WrappedParameters {
 public:
  WrappedParameters(const torch::nn::Module& module, const std::vector<NamedParameter>& wrapped);

  /// Empty if each parameter that requires a gradient is a wrapped one; else names one that is not
  /// and says what became of it and what to do. To be asked at each forward: as long as nothing was
  /// registered, it allocates nothing for a parameter and searches nothing.
  std::string why_not_all();

 private:
  struct Known {
    torch::Tensor parameter;  ///< held, so that no other takes its place in memory
    bool wrapped;
  };
  bool as_known(const torch::nn::Module& module, std::size_t& next) const;
  void look_again(const torch::nn::Module& module);
  bool knows(const torch::Tensor& parameter) const;
  bool has_wrapped(const torch::Tensor& parameter) const;

  const torch::nn::Module* module_;
  std::unordered_map<const torch::TensorImpl*, torch::Tensor> wrapped_;
  std::vector<Known>
      known_;  // in the order of registration; a tied one as often as it is registered
};

}  // namespace lockstep
