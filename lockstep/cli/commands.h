// The subcommands of the program, one file each.
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

inline std::vector<AddCommand> all_commands() {
  return {&add_train_command,   &add_evaluate_command, &add_predict_command, &add_export_command,
          &add_program_command, &add_run_command,      &add_data_command,    &add_bench_command,
          &add_explain_command, &add_doctor_command,   &add_report_command,  &add_simulate_command};
}

}  // namespace lockstep::cli
