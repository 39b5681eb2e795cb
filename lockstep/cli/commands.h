// The subcommands of the program, one file each, and the program that they form.
#pragma once

#include <vector>

#include <lockstep/cli/program.h>

namespace lockstep::cli {

void add_bench_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_program_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_simulate_command(CLI::App& app);
void add_train_command(CLI::App& app);

std::vector<AddCommand> all_commands();

/// Runs the program with all commands on the standard streams, and returns its exit code. Nothing
/// may have started a thread or used a tensor before, because `train` forks its ranks.
int run_lockstep(int argc, const char* const* argv);

}  // namespace lockstep::cli
