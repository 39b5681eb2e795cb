#include <lockstep/models/mnist_stages.h>

#include <array>
#include <string>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// The submodules of each layer.
const std::array<std::vector<std::string>, MnistNetImpl::kLayers>& mnist_layers() {
  static const std::array<std::vector<std::string>, MnistNetImpl::kLayers> layers = {
      {{"conv1"}, {"conv2", "conv2_drop"}, {"fc1"}, {"fc2"}}};
  return layers;
}

}  // namespace

MnistStageImpl::MnistStageImpl(const MnistNet& net, int first, int end)
    : net_(net.ptr()), first_(first), end_(end) {
  const auto children = net_->named_children();
  for (int layer = first; layer < end; ++layer) {
    for (const std::string& name : mnist_layers()[static_cast<std::size_t>(layer)]) {
      register_module(name, children[name]);
    }
  }
}

torch::Tensor MnistStageImpl::forward(const torch::Tensor& x) {
  return net_->forward_layers(x, first_, end_, is_training());
}

std::vector<MnistStage> mnist_stages(const MnistNet& net, int count) {
  if (count < 1 || count > MnistNetImpl::kLayers) {
    throw ConfigError(lockstep::str("mnist_stages: the number of stages must be from 1 to ",
                                    MnistNetImpl::kLayers, ", the layers of the net, got ", count));
  }
  std::vector<MnistStage> stages;
  for (int stage = 0; stage < count; ++stage) {
    stages.emplace_back(net, stage, stage + 1 < count ? stage + 1 : MnistNetImpl::kLayers);
  }
  return stages;
}

}  // namespace lockstep
