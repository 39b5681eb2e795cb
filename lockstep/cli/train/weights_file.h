// Loads weights from files that users pass to commands.
#pragma once

#include <filesystem>

#include <lockstep/train/checkpoints/state_dict_file.h>

namespace lockstep::cli {

/// Selects which weights of a checkpoint to load.
enum class WeightsKind {
  kEvaluated,  ///< the weights that the run evaluated: the average if trained with ema_decay
  kTrained,    ///< the weights of the last step
};

struct WeightsOfFile {
  StateDict state{};
  bool averaged = false;  ///< whether the parameters are averages
};

/// The model's tensors in `path`, read by load_state_dict_file(), without the states of the
/// optimizer and the loss scaler. An average is looked for in the file itself and in the other file
/// of the same checkpoint, also if `path` is a link to the checkpoint's weights.
WeightsOfFile load_weights_file(const std::filesystem::path& path,
                                WeightsKind kind = WeightsKind::kEvaluated);

}  // namespace lockstep::cli
