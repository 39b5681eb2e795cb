// The options of `lockstep simulate`.
#pragma once

#include <lockstep/cli/simulate/simulate_settings.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Adds RUN and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_simulate_options(CLI::App& command, SimulateArguments& to);

}  // namespace lockstep::cli
