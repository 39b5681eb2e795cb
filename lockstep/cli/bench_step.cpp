// lockstep bench step
#include <CLI/CLI.hpp>

#include <lockstep/cli/bench.h>
#include <lockstep/cli/bench_step_rank.h>
#include <lockstep/cli/bench_step_settings.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/launch/launcher.h>

namespace lockstep {
namespace {

void add_work_options(CLI::App& command, BenchStepArguments& to) {
  command.add_option("--model", to.model, "mnist or resnet18 (for 32x32 images)")
      ->capture_default_str();
  command.add_option("--strategy", to.strategy, "ddp or zero1, several with commas")
      ->capture_default_str();
  command.add_option("--backend", to.backend, "auto, shm, gloo or hierarchical")
      ->capture_default_str();
  command
      .add_option("--nproc-per-node", to.nproc_per_node,
                  "Processes to start on this host (default 2)")
      ->transform(whole_number<int>());
  command
      .add_option("--batch-per-rank", to.batch_per_rank,
                  "Images of each rank and step (default: 64 of mnist, 8 of resnet18)")
      ->transform(whole_number<int>());
  command.add_option("--threads", to.threads, "Of each rank")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command.add_option("--precision", to.precision, "32 or bf16")->capture_default_str();
  command
      .add_option("--bucket-cap-mb", to.bucket_cap_mb,
                  "MiB of gradients that travel together, several with commas for a row each; "
                  "whole: all of them, when backward has ended")
      ->capture_default_str();
  command
      .add_option("--parameter-memory", to.parameter_memory,
                  "as-is, flat, shared, or auto, several with commas for a row each")
      ->capture_default_str();
  command.add_option("--optimizer", to.optimizer, "sgd, adam or adamw")->capture_default_str();
  command.add_flag("--set-to-none", to.set_to_none,
                   "Gradients are undefined before each step, not zero");
  command.add_flag("--find-unused-parameters", to.find_unused_parameters,
                   "Each row also with this option of DistributedDataParallel");
}

void add_measurement_options(CLI::App& command, BenchStepArguments& to) {
  command.add_flag("--alone", to.alone,
                   "Without what the strategies are compared with, for the memory they take");
  command.add_option("--rounds", to.rounds, "In each, every way to train takes its turn")
      ->transform(whole_number<int>())
      ->capture_default_str();
  command
      .add_option("--steps", to.steps,
                  "Of each way in a round (default: what takes 0.2 s, from 1 to 50)")
      ->transform(whole_number<int>());
  command.add_option("--timeout", to.timeout_seconds, "Deadline of every wait, in seconds")
      ->capture_default_str();
  command.add_option("--json", to.json, "Also write the rows, into a folder that exists")
      ->type_name("FILE");
}

void run(const BenchStepArguments& arguments) {
  const BenchStepSettings settings = resolve(arguments);
  if (settings.worker) return bench_step_rank(settings);
  require_success(launch_ranks(
      {.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
      [&] { bench_step_rank(settings); }));
}

}  // namespace

void add_bench_step_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "step", "Time a training step on several ranks, beside processes that do not communicate");
  const auto arguments = std::make_shared<BenchStepArguments>();
  add_work_options(*command, *arguments);
  add_measurement_options(*command, *arguments);
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep
