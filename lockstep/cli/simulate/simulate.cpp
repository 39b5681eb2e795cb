// lockstep simulate
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/simulate/simulate_settings.h>
#include <lockstep/cli/simulate/simulate_text.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/simulate/all_reduce_cost.h>

namespace lockstep {
namespace {

void run_simulation(const SimulateArguments& arguments) {
  const SimulateSettings settings = resolve(arguments);
  const SimulateResult result = simulate(settings);
  std::cout << simulate_text(settings, result);
  flush_output(std::cout);
  if (!settings.json.empty()) write_json_file(settings.json, to_json(settings, result));
}

void add_network_options(CLI::App& command, SimulateArguments& to) {
  command
      .add_option("--network", to.network,
                  "1gbit, 10gbit, 25gbit, 100gbit, nvlink, ALPHA_US,GB_PER_S (microseconds of a "
                  "message, 1e9 bytes a second), or a file of bench comm --json")
      ->capture_default_str();
  command
      .add_option(
          "--run-network", to.run_network,
          "A file of bench comm --beside-computing --json on the run's own network and number of "
          "ranks: what moving data took from the run's backward is taken out of it")
      ->type_name("FILE");
  command
      .add_option("--ranks-per-host", to.ranks_per_host,
                  "Ranks that share a host and its link to others")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command
      .add_option("--algorithm", to.algorithm,
                  str("All-reduce: ", join(all_reduce_names()), "; auto takes the cheapest"))
      ->capture_default_str();
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "simulate", "Predict a run's step on more ranks, another network or with other buckets");
  const auto arguments = std::make_shared<SimulateArguments>();
  command
      ->add_option(
          "RUN", arguments->run,
          "Folder of a traced run (train --strategy ddp --trace --out FOLDER), a trace of bench "
          "step, or the profile of a step")
      ->type_name("")
      ->required();
  command
      ->add_option(
          "--ranks", arguments->ranks,
          "Numbers with commas, or A..B for the powers of two between them; the last one's "
          "step is the one of the second table")
      ->capture_default_str();
  add_network_options(*command, *arguments);
  command
      ->add_option("--strategy", arguments->strategy,
                   "ddp or zero1, which is predicted from a ddp run, too")
      ->capture_default_str();
  command->add_flag("--shared-parameters", arguments->shares_parameters,
                    "Ranks of one host share the parameters (zero1 over shared memory)");
  command->add_option("--bucket-cap-mb", arguments->bucket_cap_mb,
                      "MiB of gradients that travel together (default: the run's buckets)");
  command->add_option("--format", arguments->format, join(simulate_formats()))
      ->capture_default_str();
  command
      ->add_option("--json", arguments->json, "Also write the figures, into a folder that exists")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { run_simulation(*arguments); });
}

}  // namespace lockstep
