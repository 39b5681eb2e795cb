// The options of `lockstep explain pipeline`.
#pragma once

#include <lockstep/cli/explain/pipeline_settings.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Adds all options to `command`; parsing writes them into `to`, which must outlive it.
void add_pipeline_options(CLI::App& command, ExplainPipelineArguments& to);

}  // namespace lockstep::cli
