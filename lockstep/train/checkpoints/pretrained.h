// Loading weights that were trained for other classes.
//
//   ResNet net = resnet18(ResNetStem::kImageNet, 6);
//   const PretrainedWeights loaded =
//       load_pretrained(*net, load_state_dict_file("resnet18.pth"), "resnet18.pth");
//   std::cout << loaded.summary() << '\n';
//   // "fc has 6 outputs here and 1000 in resnet18.pth:
//   // fc.weight, fc.bias keep their initial values"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// What load_pretrained() did with the last layer.
struct LOCKSTEP_API PretrainedWeights {
  std::string origin{};
  std::string last_layer{};  ///< its name in the module: "fc"
  std::int64_t outputs = 0;  ///< outputs of the last layer in the module; 0 if it was loaded
  std::int64_t outputs_in_file = 0;    ///< 0 if the last layer was loaded
  std::vector<std::string> initial{};  ///< names of tensors that keep their previous values

  /// One line for the program's user; empty if every tensor was loaded.
  std::string summary() const;
};

/// Copies `state` into `module` by name, as load_state_dict() does, with two exceptions:
///
///   * If the layer of the module's last parameter has a different number of outputs in `state`,
///     all of that layer keeps its values.
///   * Batch normalisation keeps its "num_batches_tracked" if `state` has none, as in state dicts
///     written before PyTorch 0.4.1.
///
/// `origin` names the source of `state` in messages. Throws CheckpointError and leaves the module
/// unchanged if any other tensor is missing, unexpected, or of another shape or type; the message
/// names the first one.
LOCKSTEP_API PretrainedWeights load_pretrained(torch::nn::Module& module, const StateDict& state,
                                               const std::string& origin);

}  // namespace lockstep
