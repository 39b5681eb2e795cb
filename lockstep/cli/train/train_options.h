// The options of `lockstep train`, all groups together.
#pragma once

#include <lockstep/cli/train/train_settings.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Adds RECIPE and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_train_options(CLI::App& command, TrainArguments& to);

}  // namespace lockstep::cli
