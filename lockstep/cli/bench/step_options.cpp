#include <lockstep/cli/bench/step_settings.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/bench/row_options.h>
#include <lockstep/cli/bench/strategies_settings.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/strings.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::cli {
namespace {

void add_work_options(CLI::App& command, BenchStepArguments& to) {
  const HelpGroup group(command, "Work");
  command
      .add_option("--model", to.model,
                  "Network: " + join(step_model_names()) + " (for 32x32 images); with " +
                      strategies_of_own_processes() + ": " + join(strategies_model_names()))
      ->capture_default_str();
  command
      .add_option("--strategy", to.strategy,
                  "Strategies to time, separated by commas: " + join(strategy_names()) +
                      ", or all. " + join(step_strategy_names(), " and ") +
                      " alone share one set of ranks; with any other name, each strategy runs in "
                      "processes of its own")
      ->capture_default_str();
  command
      .add_option("--backend", to.backend,
                  "Backend of the group: " + join(comm::host_backend_names()))
      ->capture_default_str();
  command
      .add_option("--threads", to.threads,
                  "Compute threads per rank (default 1); with " + strategies_of_own_processes() +
                      ", threads of all processes together (default: one for each processor)")
      ->transform(whole_number<int>());
  command
      .add_option("--precision", to.precision,
                  "Precision of the computation: " + join(step_precision_names()))
      ->capture_default_str();
  command.add_option("--optimizer", to.optimizer, "Optimizer: " + join(optimizer_names()))
      ->capture_default_str();
}

void add_rank_options(CLI::App& command, BenchStepArguments& to) {
  const HelpGroup group(command, "Only for ddp and zero1 in one set of ranks");
  command
      .add_option("--nproc-per-node", to.nproc_per_node,
                  "Processes to start on this host (default 2)")
      ->transform(whole_number<int>());
  command
      .add_option("--batch-per-rank", to.batch_per_rank,
                  "Images per rank and step (default: 64 for mnist, 8 for resnet18)")
      ->transform(whole_number<int>());
  command.add_option("--bucket-cap-mb", to.bucket_cap_mb,
                     "Maximum sizes of a gradient bucket in MiB, separated by commas; each gets a "
                     "row. Use whole for a single bucket that is reduced after the backward "
                     "(default 25)");
  command.add_option("--parameter-memory", to.parameter_memory,
                     "Memory of the parameters: " + join(parameter_memory_names()) +
                         ", or several separated by commas; each gets a row (default auto)");
  command.add_flag("--set-to-none", to.set_to_none,
                   "Before each step, set gradients to undefined instead of zero");
  command.add_flag(
      "--find-unused-parameters", to.find_unused_parameters,
      "Time each row without and with DistributedDataParallel's option find_unused_parameters");
  command.add_flag("--alone", to.alone,
                   "Run the strategies without the baselines, so that the memory shown is theirs "
                   "alone");
}

void add_strategy_options(CLI::App& command, BenchStepArguments& to) {
  const HelpGroup group(command, "Only with " + strategies_of_own_processes());
  command
      .add_option("--batch", to.batch,
                  "Images per step, summed over all processes (default: 128 "
                  "for mnist, 32 for the ResNets)")
      ->transform(whole_number<int>());
  command
      .add_option("--micro-batches", to.micro_batches,
                  "Number of micro-batches into which a pipeline divides its batch (default 8)")
      ->transform(whole_number<int>());
  command.add_flag(
      "--recompute", to.recompute,
      "Activation checkpointing: keep only the inputs of pipeline stages and recompute "
      "the activations before each backward");
  command
      .add_option("--image-size", to.image_size,
                  "Side of the images, in pixels (ResNets only, default: 32 "
                  "for resnet18, 64 for resnet50)")
      ->transform(whole_number<int>());
  command.add_option(
      "--cut", to.cut,
      "Where to cut a ResNet into stages: balance (equal measured times, the default) or even "
      "(equal numbers of blocks; with two stages, after layer2)");
  command.add_option("--only", to.only,
                     "Names of the rows to measure, separated by commas; ratios are shown only if "
                     "single is among them (default: all)");
}

void add_measurement_options(CLI::App& command, BenchStepArguments& to) {
  const HelpGroup group(command, "Measurement");
  command
      .add_option("--rounds", to.rounds,
                  "Number of rounds; each round times every row once (default 21; with " +
                      strategies_of_own_processes() + ", 5)")
      ->transform(whole_number<int>());
  command
      .add_option("--steps", to.steps,
                  "Steps per row and round (default: as many as take 0.2 s, from 1 to 50; with " +
                      strategies_of_own_processes() + ", as many as take 1 s, from 3 to 1000)")
      ->transform(whole_number<int>());
  command.add_option("--timeout", to.timeout_seconds, "Timeout of every wait, in seconds")
      ->capture_default_str();
  add_rows_json_option(command, to.json);
  add_row_traces_option(command, to.trace,
                        "After the timed steps of each row, make ten more and record what all "
                        "threads of all ranks do");
}

}  // namespace

void add_bench_step_options(CLI::App& command, BenchStepArguments& to) {
  add_work_options(command, to);
  add_rank_options(command, to);
  add_strategy_options(command, to);
  add_measurement_options(command, to);
  collect_values(command, {"--strategy", "--bucket-cap-mb", "--parameter-memory", "--only"});
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

}  // namespace lockstep::cli
