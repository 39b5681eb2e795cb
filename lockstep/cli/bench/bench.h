// Functions that add the subcommands of `lockstep bench`. Each has a source file of its own.
#pragma once

namespace CLI {
class App;
}

namespace lockstep::cli {

void add_bench_comm_command(CLI::App& bench);
void add_bench_loader_command(CLI::App& bench);
void add_bench_step_command(CLI::App& bench);
void add_bench_table_command(CLI::App& bench);

}  // namespace lockstep::cli
