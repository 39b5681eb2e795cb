// The subcommands of `lockstep explain`, one file each.
#pragma once

namespace CLI {
class App;
}

namespace lockstep::cli {

void add_explain_pipeline_command(CLI::App& explain);

}  // namespace lockstep::cli
