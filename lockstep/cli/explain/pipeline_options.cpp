#include <lockstep/cli/explain/pipeline_settings.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/option_checks.h>
#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

namespace lockstep::cli {
namespace {

void add_schedule_options(CLI::App& command, ExplainPipelineArguments& to) {
  command.add_option(
      "--schedule", to.schedule,
      "Schedule of the pipeline: " + join(pipeline::schedule_names()) + " (default 1f1b)");
  command.add_option("--stages", to.stages, "Number of stages of the model (default 4)")
      ->transform(whole_number<int>());
  command
      .add_option("--workers", to.workers,
                  "Number of workers, each a device or core (default: one for each stage, or with "
                  "interleaved and zbv one for every two stages)")
      ->transform(whole_number<int>());
  command
      .add_option("--micro-batches", to.micro_batches,
                  "Number of micro-batches into which a batch is divided (default 8)")
      ->transform(whole_number<int>());
  command
      .add_option("--table", to.table,
                  "Table to use instead of a schedule: CSV with a line for each worker and a cell "
                  "for each action, such as 2F0 for stage 2's forward of micro-batch 0")
      ->type_name("FILE");
  command.add_option("--message-cost", to.message_cost,
                     "Duration of a message relative to that of a forward (default 0)");
}

void add_run_options(CLI::App& command, ExplainPipelineArguments& to) {
  command.add_flag("--measured", to.measured,
                   "Also run the table on threads of this process, with stages of linear layers; "
                   "shows the bytes of their activations and the executor's cost (the time that "
                   "the same table takes with stages that do nothing)");
  command
      .add_option("--wait", to.wait,
                  "Microseconds that a stage waits in each forward and each half of a backward, "
                  "instead of computing; useful with more workers than processors (--measured "
                  "only, default: stages compute)")
      ->transform(whole_number<int>());
  command.add_option("--width", to.width, "Features per layer (--measured only, default 512)")
      ->transform(whole_number<int>());
  command.add_option("--layers", to.layers, "Layers per stage (--measured only, default 2)")
      ->transform(whole_number<int>());
  command
      .add_option("--samples", to.samples, "Samples per micro-batch (--measured only, default 64)")
      ->transform(whole_number<int>());
  command.add_option("--activation", to.activation,
                     "Activation after each layer: relu or gelu (--measured only, default relu)");
  command
      .add_option("--threads", to.threads, "OpenMP threads per worker (--measured only, default 1)")
      ->transform(whole_number<int>());
  command
      .add_option("--steps", to.steps,
                  "Steps to time; their median is shown (--measured only, default 21)")
      ->transform(whole_number<int>());
}

void add_output_options(CLI::App& command, ExplainPipelineArguments& to) {
  command
      .add_option("--svg", to.svg,
                  "Also draw the schedule to this SVG file (its folder must exist)")
      ->type_name("FILE");
  command
      .add_option("--csv", to.csv, "Also write the table to this CSV file, for editing and --table")
      ->type_name("FILE");
  command
      .add_option("--json", to.json,
                  "Also write bubbles, activations and the executor's cost to this JSON file")
      ->type_name("FILE");
}

}  // namespace

void add_pipeline_options(CLI::App& command, ExplainPipelineArguments& to) {
  add_schedule_options(command, to);
  add_run_options(command, to);
  add_output_options(command, to);
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

}  // namespace lockstep::cli
