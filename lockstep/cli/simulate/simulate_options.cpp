#include <lockstep/cli/simulate/simulate_settings.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/option_checks.h>
#include <lockstep/core/strings.h>
#include <lockstep/simulate/all_reduce_cost.h>
#include <lockstep/simulate/simulation.h>

namespace lockstep::cli {
namespace {

void add_network_options(CLI::App& command, SimulateArguments& to) {
  command
      .add_option(
          "--network", to.network,
          "Network to predict for: 1gbit, 10gbit, 25gbit, 100gbit, nvlink, ALPHA_US,GB_PER_S "
          "(microseconds per message, 1e9 bytes per second), or a file from bench comm --json")
      ->capture_default_str();
  command
      .add_option(
          "--run-network", to.run_network,
          "File from bench comm --beside-computing --json, measured on the run's own network with "
          "the run's number of ranks; the prediction then leaves out the time that communication "
          "added to backward in the run")
      ->type_name("FILE");
  command
      .add_option("--ranks-per-host", to.ranks_per_host,
                  "Number of ranks per host; they share the host's link to other hosts")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command
      .add_option("--algorithm", to.algorithm,
                  str("All-reduce algorithm: ", join(simulate::all_reduce_names()),
                      "; auto takes the fastest"))
      ->capture_default_str();
}

}  // namespace

void add_simulate_options(CLI::App& command, SimulateArguments& to) {
  command
      .add_option("RUN", to.run,
                  "Run to predict from: the folder of a traced run (train --strategy ddp --trace "
                  "--out FOLDER), a trace of bench step, or the profile of a step")
      ->type_name("")
      ->required();
  command
      .add_option("--ranks", to.ranks,
                  "Numbers of ranks, separated by commas, or A..B for the powers of two from A to "
                  "B; the table of other settings uses the last number")
      ->capture_default_str();
  add_network_options(command, to);
  command
      .add_option("--strategy", to.strategy,
                  str("Strategy to predict: ", join(simulate::simulated_strategy_names()),
                      " (each is predicted from a run with ddp)"))
      ->capture_default_str();
  command.add_flag("--shared-parameters", to.shares_parameters,
                   "Assume that ranks of one host share the parameters (zero1 over shared memory)");
  command.add_option("--bucket-cap-mb", to.bucket_cap_mb,
                     "Maximum size of a gradient bucket, in MiB (default: the run's buckets)");
  command.add_option("--format", to.format, "Format of the output: " + join(simulate_formats()))
      ->capture_default_str();
  command
      .add_option("--json", to.json,
                  "Also write the figures to this JSON file (its folder must exist)")
      ->type_name("FILE");
  collect_values(command, {"--ranks"});
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

}  // namespace lockstep::cli
