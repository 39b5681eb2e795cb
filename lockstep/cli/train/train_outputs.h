// What a run writes, and where: its folder with checkpoints and traces, its record and its loggers.
#pragma once

#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// Sets the paths and loggers of a run. In the process that speaks for the run, it also creates and
/// locks --out, and checks that everything can be written. Throws ConfigError, which names the
/// option, if something cannot be written, if --out is in use, or if it holds a checkpoint and
/// neither --resume nor --overwrite is given (this error names the options of the Trainer; see
/// flag_names.h). Throws CheckpointError if there is nothing to resume from.
void resolve_outputs(const TrainArguments& arguments, TrainSettings& settings);

}  // namespace lockstep::cli
