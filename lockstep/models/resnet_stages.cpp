#include <lockstep/models/resnet_stages.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string_view>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

constexpr std::string_view kLayer = "layer";

template <class Impl>
std::shared_ptr<Impl> layer_of(const ResNet& net, const std::string& name) {
  const auto children = net->named_children();
  auto layer = std::dynamic_pointer_cast<Impl>(children[name]);
  LOCKSTEP_CHECK(layer != nullptr, "ResNet: '", name, "' is of another type");
  return layer;
}

std::int64_t blocks_of(const ResNet& net) {
  const auto& layers = net->options().layers;
  return std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
}

// The cut after the first `position` blocks: "layer2", or "layer2.0" within a layer.
std::string name_of_cut(const ResNet& net, std::int64_t position) {
  std::int64_t left = position;
  const auto& layers = net->options().layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (left == layers[i]) return str(kLayer, i + 1);
    if (left < layers[i]) return str(kLayer, i + 1, '.', left - 1);
    left -= layers[i];
  }
  throw InternalError("ResNet: a cut after its last block");
}

// Parses `text` as a non-negative integer; -1 if it is none.
std::int64_t number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size() && number >= 0;
  return whole && !text.empty() ? number : -1;
}

// The number of blocks up to the end of the part that `cut` names.
std::int64_t position_of_cut(const ResNet& net, const std::string& cut) {
  const auto& layers = net->options().layers;
  std::string_view rest = cut;
  if (rest.starts_with(kLayer)) {
    rest.remove_prefix(kLayer.size());
    const std::size_t dot = rest.find('.');
    const std::int64_t layer = number_in(rest.substr(0, dot)) - 1;
    if (layer >= 0 && layer < static_cast<std::int64_t>(layers.size())) {
      const std::int64_t before =
          std::accumulate(layers.begin(), layers.begin() + layer, std::int64_t{0});
      const std::int64_t count = layers[static_cast<std::size_t>(layer)];
      if (dot == std::string_view::npos) return before + count;
      const std::int64_t block = number_in(rest.substr(dot + 1));
      if (block >= 0 && block < count) return before + block + 1;
    }
  }
  throw ConfigError(str("resnet_stages: the net has no '", cut,
                        "'; expected a layer or a block of one, such as layer2 or layer3.1"));
}

}  // namespace

ResNetStageImpl::ResNetStageImpl(const ResNet& net, std::int64_t first, std::int64_t end,
                                 bool is_first, bool is_last) {
  if (is_first) {
    conv1_ = register_module("conv1", layer_of<nn::Conv2dImpl>(net, "conv1"));
    bn1_ = register_module("bn1", layer_of<nn::BatchNorm2dImpl>(net, "bn1"));
    pools_ = net->options().stem == ResNetStem::kImageNet;
  }
  std::int64_t before = 0;
  for (std::size_t i = 0; i < net->options().layers.size(); ++i) {
    const std::int64_t count = net->options().layers[i];
    const std::int64_t from = std::max(first - before, std::int64_t{0});
    const std::int64_t to = std::min(end - before, count);
    before += count;
    if (from >= to) continue;
    const std::string name = str(kLayer, i + 1);
    const nn::Sequential whole(layer_of<nn::SequentialImpl>(net, name));
    nn::Sequential part = whole;
    if (to - from < count) {
      part = nn::Sequential();
      for (std::int64_t block = from; block < to; ++block) {
        part->push_back(std::to_string(block), *(whole->begin() + block));
      }
    }
    layers_.push_back(register_module(name, part));
  }
  if (is_last) fc_ = register_module("fc", layer_of<nn::LinearImpl>(net, "fc"));
}

torch::Tensor ResNetStageImpl::forward(torch::Tensor x) {
  if (conv1_) {
    x = bn1_->forward(conv1_->forward(x)).relu_();
    if (pools_) x = at::max_pool2d(x, 3, 2, 1);
  }
  for (nn::Sequential& layer : layers_) x = layer->forward(x);
  return fc_ ? fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1)) : x;
}

std::vector<ResNetStage> resnet_stages(const ResNet& net, const std::vector<std::string>& cuts) {
  std::vector<std::int64_t> ends;
  for (const std::string& cut : cuts) {
    ends.push_back(position_of_cut(net, cut));
    if (ends.size() == 1 || ends[ends.size() - 2] < ends.back()) continue;
    throw ConfigError(str(
        "resnet_stages: cuts must be different and in the order of the forward, got ", join(cuts)));
  }
  ends.push_back(blocks_of(net));
  std::vector<ResNetStage> stages;
  std::int64_t first = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    stages.emplace_back(net, first, ends[s], s == 0, s + 1 == ends.size());
    first = ends[s];
  }
  return stages;
}

std::vector<std::string> resnet_blocks(const ResNet& net) {
  std::vector<std::string> names;
  for (std::int64_t i = 1; i <= blocks_of(net); ++i) names.push_back(name_of_cut(net, i));
  return names;
}

std::vector<std::string> resnet_cuts(const ResNet& net, int stages) {
  const std::int64_t blocks = blocks_of(net);
  if (stages < 1 || stages > blocks) {
    throw ConfigError(str("resnet_cuts: the number of stages must be from 1 to ", blocks,
                          ", the blocks of the net, got ", stages));
  }
  if (stages == 2) return {str(kLayer, 2)};
  std::vector<std::string> cuts;
  for (std::int64_t s = 1; s < stages; ++s) cuts.push_back(name_of_cut(net, s * blocks / stages));
  return cuts;
}

}  // namespace lockstep
