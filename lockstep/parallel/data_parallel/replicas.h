// One copy of a module for each device, kept between steps and synchronized with the module before
// each step.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/parallel/data_parallel/broadcast.h>
#include <lockstep/parallel/data_parallel/module_parts.h>

namespace lockstep::detail::data_parallel {

/// All replicas, including the first, are clones of the module with their own leaves, so that each
/// has separate gradients and a separate graph. The parameters of replicas on the first device
/// share the module's memory and version counters; those on other devices are copies. The buffers
/// of the first replica share the module's memory; those of the others are copies.
///
/// Refers to the module, which must outlive all calls of follow(). Not thread-safe, but different
/// replicas may be used by different threads.
class Replicas {
 public:
  /// A replica's parameter, and the index in parameters() of the module's parameter that it
  /// represents. Each parameter of the replica occurs once. If the module ties parameters, several
  /// may represent the same one, because cloning unties them.
  struct Leaf {
    torch::Tensor tensor;
    std::size_t parameter;
  };

  /// Throws ConfigError if the module cannot be cloned or is not on devices.front(). The default
  /// CPU generator is unchanged.
  Replicas(torch::nn::Module& module, std::vector<torch::Device> devices);

  /// Synchronizes the replicas with the module: values, shapes and dtypes, which parameters require
  /// gradients, and which modules are training. Clones them again if the parts of the module have
  /// changed. Throws ConfigError if the module has left the first device.
  void follow();

  std::size_t size() const { return devices_.size(); }
  const std::vector<torch::Device>& devices() const { return devices_; }
  torch::nn::Module& replica(std::size_t index) const { return *copies_[index].module; }
  /// The module's parameters, without duplicates.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  /// The name of `tensor` if it is a parameter of the module; empty otherwise.
  std::string name_of(const torch::Tensor& tensor) const;
  const std::vector<Leaf>& leaves(std::size_t replica) const { return copies_[replica].leaves; }

 private:
  struct Copy {
    std::shared_ptr<torch::nn::Module> module;
    ModuleParts parts;
    std::vector<Leaf> leaves;
  };
  void make(ModuleParts parts);
  Copy copy_on(torch::Device device) const;
  void check(const Copy& copy, const ModuleParts& parts) const;
  bool shares_parameters(std::size_t replica) const {
    return devices_[replica] == devices_.front();
  }

  torch::nn::Module* module_;
  std::vector<torch::Device> devices_;
  ModuleParts parts_;  // the module's parts when the copies were made
  std::vector<torch::Tensor> parameters_;
  std::vector<Copy> copies_;
  Broadcast parameters_to_others_;
  Broadcast buffers_to_others_;
};

}  // namespace lockstep::detail::data_parallel
