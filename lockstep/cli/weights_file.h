// Weights in files that users give to commands.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/train/state_dict_file.h>

namespace lockstep {

/// The model's tensors in `path`, as load_state_dict_file() reads them: of a checkpoint without
/// what the optimizer and the loss scaler remember.
inline StateDict load_weights_file(const std::filesystem::path& path) {
  StateDict state = load_state_dict_file(path);
  std::erase_if(state, [](const auto& entry) { return entry.first.starts_with("optimizer."); });
  return state;
}

}  // namespace lockstep
