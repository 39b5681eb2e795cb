// lockstep data ACTION
#include <lockstep/cli/data/data.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>

namespace lockstep::cli {

void add_data_command(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Find, download, pack, check and look at data sets");
  data->require_subcommand(1);
  add_data_list_command(*data);
  add_data_get_command(*data);
  add_data_pack_command(*data);
  add_data_info_command(*data);
  add_data_check_command(*data);
  add_data_preview_command(*data);
  // Allows global options after the action's name, too.
  for (CLI::App* action : data->get_subcommands([](const CLI::App*) { return true; })) {
    action->fallthrough();
  }
}

}  // namespace lockstep::cli
