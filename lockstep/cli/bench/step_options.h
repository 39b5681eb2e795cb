// The options of `lockstep bench step`, of both modes.
#pragma once

#include <lockstep/cli/bench/step_settings.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Adds all options to `command`; parsing writes them into `to`, which must outlive it.
void add_bench_step_options(CLI::App& command, BenchStepArguments& to);

}  // namespace lockstep::cli
