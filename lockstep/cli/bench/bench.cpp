// lockstep bench MEASUREMENT
#include <lockstep/cli/bench/bench.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>

namespace lockstep::cli {

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure collectives, loaders, training steps or whole epochs on this machine");
  bench->require_subcommand(1);
  add_bench_comm_command(*bench);
  add_bench_loader_command(*bench);
  add_bench_step_command(*bench);
  add_bench_table_command(*bench);
  // Allows global options after the measurement's name, too.
  for (CLI::App* measurement : bench->get_subcommands([](const CLI::App*) { return true; })) {
    measurement->fallthrough();
  }
}

}  // namespace lockstep::cli
