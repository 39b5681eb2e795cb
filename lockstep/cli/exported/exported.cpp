// lockstep program COMMAND FILE.pt2
#include <lockstep/cli/exported/exported.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>

namespace lockstep::cli {

void add_program_command(CLI::App& app) {
  CLI::App* const program = app.add_subcommand(
      "program", "Exported programs: files of Python's torch.export.save (.pt2)");
  program->require_subcommand(1);
  add_program_info_command(*program);
  add_program_draw_command(*program);
}

}  // namespace lockstep::cli
