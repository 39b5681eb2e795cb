// Functions that add the subcommands of `lockstep data`. Each has a source file of its own.
#pragma once

namespace CLI {
class App;
}

namespace lockstep::cli {

void add_data_check_command(CLI::App& data);
void add_data_get_command(CLI::App& data);
void add_data_info_command(CLI::App& data);
void add_data_list_command(CLI::App& data);
void add_data_pack_command(CLI::App& data);
void add_data_preview_command(CLI::App& data);

}  // namespace lockstep::cli
