// lockstep bench step
#include <CLI/CLI.hpp>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/step/rank.h>
#include <lockstep/bench/step/settings.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/bench/strategies.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/launch/launcher.h>

namespace lockstep {
namespace {

void add_work_options(CLI::App& command, BenchStepArguments& to) {
  command
      .add_option("--model", to.model,
                  "mnist, resnet18 (for 32x32 images) or, with --strategy all, resnet50")
      ->capture_default_str();
  command
      .add_option("--strategy", to.strategy,
                  "ddp, zero1 or both with a comma, in one set of ranks; or all (or some of "
                  "single, dp, ddp, zero1, pipeline, hybrid), each way in processes of its own")
      ->capture_default_str();
  command.add_option("--backend", to.backend, "auto, shm, gloo or hierarchical")
      ->capture_default_str();
  command
      .add_option("--threads", to.threads,
                  "Threads of each rank (default 1); with --strategy all of all processes together "
                  "(default: one for each processor)")
      ->transform(whole_number<int>());
  command.add_option("--precision", to.precision, "32 or bf16")->capture_default_str();
  command.add_option("--optimizer", to.optimizer, "sgd, adam or adamw")->capture_default_str();
}

void add_rank_options(CLI::App& command, BenchStepArguments& to) {
  command
      .add_option("--nproc-per-node", to.nproc_per_node,
                  "Processes to start on this host (ddp and zero1 only, default 2)")
      ->transform(whole_number<int>());
  command
      .add_option("--batch-per-rank", to.batch_per_rank,
                  "Images of each rank and step (ddp and zero1 only, default: 64 for mnist, 8 for "
                  "resnet18)")
      ->transform(whole_number<int>());
  command.add_option("--bucket-cap-mb", to.bucket_cap_mb,
                     "MiB of gradients that travel together, several with commas for a row each; "
                     "whole: all of them, when backward has ended (ddp and zero1 only, default "
                     "25)");
  command.add_option("--parameter-memory", to.parameter_memory,
                     "as-is, flat, shared, or auto, several with commas for a row each (ddp and "
                     "zero1 only, default auto)");
  command.add_flag("--set-to-none", to.set_to_none,
                   "Gradients are undefined before each step, not zero (ddp and zero1 only)");
  command.add_flag("--find-unused-parameters", to.find_unused_parameters,
                   "Each row also with this option of DistributedDataParallel (ddp and zero1 "
                   "only)");
  command.add_flag("--alone", to.alone,
                   "Leave out what the strategies are compared with, for the memory that they take "
                   "(ddp and zero1 only)");
}

void add_strategy_options(CLI::App& command, BenchStepArguments& to) {
  command
      .add_option("--batch", to.batch,
                  "Images of a step, over all processes (--strategy all only, default: 128 for "
                  "mnist, 32 for the ResNets)")
      ->transform(whole_number<int>());
  command
      .add_option("--micro-batches", to.micro_batches,
                  "Parts of a pipeline's batch (--strategy all only, default 8)")
      ->transform(whole_number<int>());
  command.add_flag("--recompute", to.recompute,
                   "Stages of pipelines keep their inputs only, and compute the rest again before "
                   "the backward (--strategy all only)");
  command
      .add_option("--image-size", to.image_size,
                  "Pixels of a side, for the ResNets (--strategy all only, default: 32 for "
                  "resnet18, 64 for resnet50)")
      ->transform(whole_number<int>());
  command.add_option("--cut", to.cut,
                     "Where a ResNet is cut into stages: balance, by measured time, or even, by "
                     "blocks, two stages after layer2 (--strategy all only, default balance)");
  command.add_option("--only", to.only,
                     "Ways to measure, by the names of their rows, with commas (--strategy all "
                     "only); ratios need single among them");
}

void add_measurement_options(CLI::App& command, BenchStepArguments& to) {
  command
      .add_option("--rounds", to.rounds,
                  "Rounds, in each of which every way to train takes its turn (default 21; with "
                  "--strategy all 5)")
      ->transform(whole_number<int>());
  command
      .add_option("--steps", to.steps,
                  "Steps of each way in a round (default: what takes 0.2 s, from 1 to 50; with "
                  "--strategy all what takes 1 s, from 3 to 1000)")
      ->transform(whole_number<int>());
  command.add_option("--timeout", to.timeout_seconds, "Deadline of every wait, in seconds")
      ->capture_default_str();
  command.add_option("--json", to.json, "Also write the rows, into a folder that exists")
      ->type_name("FILE");
  command
      .add_option("--trace", to.trace,
                  "Also make ten steps of each row, after those that are timed, and write what all "
                  "threads of all ranks did in them, a file for each, for https://ui.perfetto.dev")
      ->type_name("FOLDER");
}

void run(const BenchStepArguments& arguments) {
  if (compares_strategies(arguments)) return bench_strategies(resolve_strategies(arguments));
  const BenchStepSettings settings = resolve(arguments);
  if (settings.speaks()) check_trace_folder(kBenchStep, settings.trace);
  if (settings.worker) return bench_step_rank(settings);
  const OtherPrograms others;
  require_success(
      launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                   [&] { bench_step_rank(settings); }));
  warn_of_other_programs(others);
}

}  // namespace

void add_bench_step_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "step",
      "Time a training step: on several ranks, beside processes that do not communicate, or by "
      "every strategy");
  const auto arguments = std::make_shared<BenchStepArguments>();
  add_work_options(*command, *arguments);
  add_rank_options(*command, *arguments);
  add_strategy_options(*command, *arguments);
  add_measurement_options(*command, *arguments);
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep
