#include <lockstep/cli/train/weights_file.h>

#include <map>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/model_ema.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Removes the tensors from `state` that are not weights, and returns the averages among them.
std::map<std::string, torch::Tensor> take_averages(StateDict& state) {
  const std::string prefix = std::string(kTrainingPrefix) + std::string(kAverageState);
  std::map<std::string, torch::Tensor> averages;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) averages.emplace(name.substr(prefix.size()), tensor);
  }
  std::erase_if(state, [](const auto& entry) { return entry.first.starts_with(kTrainingPrefix); });
  return averages;
}

// The file of a checkpoint that holds everything but the weights at `path`; empty if there is none.
fs::path training_file_beside(const fs::path& path) {
  std::error_code error;
  const fs::path weights = fs::canonical(path, error);
  if (error || weights.filename() != train::kModelFile) return {};
  fs::path training = weights.parent_path() / train::kTrainingFile;
  return fs::exists(training, error) ? training : fs::path();
}

}  // namespace

WeightsOfFile load_weights_file(const fs::path& path, WeightsKind kind) {
  WeightsOfFile weights{.state = load_state_dict_file(path)};
  auto averages = take_averages(weights.state);
  if (kind == WeightsKind::kTrained) return weights;
  if (const fs::path beside = training_file_beside(path); averages.empty() && !beside.empty()) {
    StateDict training = load_state_dict_file(beside);
    averages = take_averages(training);
  }
  for (auto& [name, tensor] : weights.state) {
    const auto found = averages.find(name);
    if (found == averages.end()) continue;
    tensor = found->second;
    weights.averaged = true;
  }
  return weights;
}

}  // namespace lockstep::cli
