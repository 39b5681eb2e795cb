// The subcommands of `lockstep program`, one file each.
#pragma once

namespace CLI {
class App;
}

namespace lockstep::cli {

void add_program_draw_command(CLI::App& program);
void add_program_info_command(CLI::App& program);

}  // namespace lockstep::cli
