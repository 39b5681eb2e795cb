// lockstep bench step
#include <CLI/CLI.hpp>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/step/rank.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/cli/bench/strategies.h>
#include <lockstep/cli/bench/strategies_settings.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::cli {
namespace {

void run(const BenchStepArguments& arguments) {
  if (compares_strategies(arguments)) return bench_strategies(resolve_strategies(arguments));
  const bench::BenchStepSettings settings = resolve(arguments);
  if (settings.speaks()) check_trace_folder(kBenchStep, settings.trace);
  if (settings.worker) return bench::bench_step_rank(settings);
  const OtherPrograms others;
  require_success(
      launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                   [&] { bench::bench_step_rank(settings); }));
  bench::warn_of_other_programs(others);
}

}  // namespace

void add_bench_step_command(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("step",
                           "Time a training step on several ranks and compare it with processes "
                           "that do not communicate, or compare all strategies");
  const auto arguments = std::make_shared<BenchStepArguments>();
  add_bench_step_options(*command, *arguments);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep::cli
