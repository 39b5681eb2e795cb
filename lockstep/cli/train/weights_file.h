// Weights in files that users give to commands.
#pragma once

#include <filesystem>

#include <lockstep/train/checkpoints/state_dict_file.h>

namespace lockstep {

/// Which weights of a checkpoint.
enum class WeightsKind {
  kEvaluated,  ///< those that the run evaluated: the average, where it was trained with ema_decay
  kTrained,    ///< those of the last step
};

struct WeightsOfFile {
  StateDict state{};
  bool averaged = false;  ///< the state has averaged parameters
};

/// The model's tensors in `path`, as load_state_dict_file() reads them: of a checkpoint without
/// what the optimizer and the loss scaler remember. An average is found in the file itself, or in
/// the checkpoint's other file beside it, also where `path` is a link to the checkpoint's weights.
WeightsOfFile load_weights_file(const std::filesystem::path& path,
                                WeightsKind kind = WeightsKind::kEvaluated);

}  // namespace lockstep
