#include <lockstep/cli/commands.h>

#include <iostream>
#include <string>

#include <torch/version.h>

#include <lockstep/cli/build_commit.h>
#include <lockstep/cli/flag_names.h>

namespace lockstep::cli {

std::vector<AddCommand> all_commands() {
  return {&add_train_command,   &add_evaluate_command, &add_predict_command, &add_export_command,
          &add_program_command, &add_run_command,      &add_data_command,    &add_bench_command,
          &add_explain_command, &add_doctor_command,   &add_report_command,  &add_simulate_command};
}

int run_lockstep(int argc, const char* const* argv) {
  log_with_flags();
  const std::string version = version_text(LOCKSTEP_VERSION, build_commit(), TORCH_VERSION);
  return run_program(argc, argv, version, all_commands(), std::cout, std::cerr);
}

}  // namespace lockstep::cli
