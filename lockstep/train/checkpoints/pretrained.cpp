#include <lockstep/train/checkpoints/pretrained.h>

#include <string_view>
#include <unordered_map>

#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

constexpr std::string_view kBatchesTracked = ".num_batches_tracked";

// "fc" of "fc.weight"; empty for a parameter of the module itself.
std::string layer_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string last_layer_of(const torch::nn::Module& module) {
  std::string layer;
  for (const auto& parameter : module.named_parameters()) {
    if (parameter.value().defined()) layer = layer_of(parameter.key());
  }
  return layer;
}

// Whether the shapes are equal except perhaps in the first dimension.
bool equal_but_for_outputs(const torch::Tensor& own, const torch::Tensor& given) {
  return own.dim() > 0 && own.dim() == given.dim() &&
         own.sizes().slice(1) == given.sizes().slice(1);
}

// Sets `outputs` and `outputs_in_file` if all tensors of the last layer are in `given` and differ
// only in their number of outputs. copy_state() reports any other difference.
void compare_last_layer(PretrainedWeights& result, const StateDict& own,
                        const std::unordered_map<std::string, torch::Tensor>& given) {
  std::int64_t outputs = 0;
  std::int64_t outputs_in_file = 0;
  for (const auto& [name, tensor] : own) {
    if (layer_of(name) != result.last_layer) continue;
    const auto found = given.find(name);
    if (found == given.end() || !equal_but_for_outputs(tensor, found->second)) return;
    outputs = tensor.size(0);
    outputs_in_file = found->second.size(0);
  }
  if (outputs == outputs_in_file) return;
  result.outputs = outputs;
  result.outputs_in_file = outputs_in_file;
}

}  // namespace

std::string PretrainedWeights::summary() const {
  std::string text;
  if (outputs != outputs_in_file) {
    text = lockstep::str(last_layer, " has ", amount_of(outputs, "output"), " here and ",
                         outputs_in_file, " in ", origin, ": ");
  } else if (!initial.empty()) {
    text = lockstep::str("not in ", origin, ": ");
  }
  if (initial.empty()) return text;
  return text + join(initial) +
         (initial.size() == 1 ? " keeps its initial value" : " keep their initial values");
}

PretrainedWeights load_pretrained(torch::nn::Module& module, const StateDict& state,
                                  const std::string& origin) {
  StateDict given = state;
  StateDict own = state_dict(module);
  PretrainedWeights result{.origin = origin, .last_layer = last_layer_of(module)};
  const auto in_last_layer = [&](const auto& entry) {
    return layer_of(entry.first) == result.last_layer;
  };
  const std::unordered_map<std::string, torch::Tensor> by_name(given.begin(), given.end());
  compare_last_layer(result, own, by_name);
  const bool keep_last_layer = result.outputs != result.outputs_in_file;
  const auto stays = [&](const auto& entry) {
    return (keep_last_layer && in_last_layer(entry)) ||
           (entry.first.ends_with(kBatchesTracked) && !by_name.contains(entry.first));
  };
  for (const auto& entry : own) {
    if (stays(entry)) result.initial.push_back(entry.first);
  }
  std::erase_if(own, stays);
  if (keep_last_layer) std::erase_if(given, in_last_layer);
  copy_state(given, own, origin);
  return result;
}

}  // namespace lockstep
