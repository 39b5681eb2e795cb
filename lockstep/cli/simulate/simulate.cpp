// lockstep simulate
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/simulate/simulate_settings.h>
#include <lockstep/cli/simulate/simulate_text.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/simulate/simulation.h>

namespace lockstep::cli {
namespace {

void run_simulation(const SimulateArguments& arguments) {
  const SimulateSettings settings = resolve(arguments);
  const SimulateResult result = simulate(settings);
  std::cout << simulate_text(settings, result);
  report::flush_output(std::cout);
  if (!settings.json.empty()) report::write_text_file(settings.json, to_json(settings, result));
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "simulate",
      "Predict a run's step time with more ranks, another network or other bucket sizes");
  const auto arguments = std::make_shared<SimulateArguments>();
  add_simulate_options(*command, *arguments);
  command->callback([arguments] { run_simulation(*arguments); });
}

}  // namespace lockstep::cli
