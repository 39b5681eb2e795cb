// lockstep explain pipeline
#include <unistd.h>

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/cli/explain/explain.h>
#include <lockstep/cli/explain/measured_pipeline.h>
#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/cli/explain/pipeline_svg.h>
#include <lockstep/cli/explain/pipeline_text.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>

namespace lockstep {
namespace {

void add_schedule_options(CLI::App& command, ExplainPipelineArguments& to) {
  command.add_option("--schedule", to.schedule,
                     "gpipe, 1f1b, interleaved, zb-h1 or zbv (default 1f1b)");
  command.add_option("--stages", to.stages, "Stages of the model (default 4)")
      ->transform(whole_number<int>());
  command
      .add_option("--workers", to.workers,
                  "Devices or cores (default: as many as stages; interleaved and zbv have half as "
                  "many)")
      ->transform(whole_number<int>());
  command.add_option("--micro-batches", to.micro_batches, "Parts of a batch (default 8)")
      ->transform(whole_number<int>());
  command
      .add_option("--table", to.table,
                  "A table in place of a schedule: CSV, a line for each worker, cells such as 2F0")
      ->type_name("FILE");
  command.add_option("--message-cost", to.message_cost,
                     "Time that a message takes, where a forward takes 1 (default 0)");
}

void add_run_options(CLI::App& command, ExplainPipelineArguments& to) {
  command.add_flag("--measured", to.measured,
                   "Also run the table: stages of linear layers on threads of this process, the "
                   "bytes of their activations, and what the executor costs (the time of the same "
                   "table with stages that do nothing)");
  command
      .add_option("--wait", to.wait,
                  "Stages wait instead of computing: microseconds of a forward, and of each half "
                  "of a backward. For more workers than processors (--measured only)")
      ->transform(whole_number<int>());
  command.add_option("--width", to.width, "Features of a layer (--measured only, default 512)")
      ->transform(whole_number<int>());
  command.add_option("--layers", to.layers, "Layers of a stage (--measured only, default 2)")
      ->transform(whole_number<int>());
  command
      .add_option("--samples", to.samples, "Samples of a micro-batch (--measured only, default 64)")
      ->transform(whole_number<int>());
  command.add_option("--activation", to.activation,
                     "relu or gelu, behind each layer (--measured only, default relu)");
  command
      .add_option("--threads", to.threads,
                  "OpenMP threads of each worker (--measured only, default 1)")
      ->transform(whole_number<int>());
  command
      .add_option("--steps", to.steps,
                  "Steps, of which the median is shown (--measured only, default 21)")
      ->transform(whole_number<int>());
}

void add_output_options(CLI::App& command, ExplainPipelineArguments& to) {
  command.add_option("--svg", to.svg, "Also draw it, in a folder that exists")->type_name("FILE");
  command.add_option("--csv", to.csv, "Also write the table, to be changed and given to --table")
      ->type_name("FILE");
  command.add_option("--json", to.json, "Also write bubbles, activations and the executor's cost")
      ->type_name("FILE");
}

void explain_pipeline(const ExplainPipelineArguments& arguments) {
  const ExplainPipelineSettings settings = resolve(arguments);
  const PipelinePicture picture =
      settings.toys ? picture_of(settings, measure_pipeline(settings.table, *settings.toys))
                    : picture_of(settings);
  std::cout << pipeline_text(picture, detect_terminal(STDOUT_FILENO).columns());
  if (!settings.csv.empty()) write_json_file(settings.csv, csv(settings.table));
  if (!settings.json.empty()) write_json_file(settings.json, picture_json(picture));
  if (!settings.svg.empty()) {
    write_json_file(settings.svg, pipeline_svg(picture));
    std::cout << "drawn in " << settings.svg.string() << '\n';
  }
  flush_output(std::cout);
}

}  // namespace

void add_explain_pipeline_command(CLI::App& explain) {
  CLI::App* command = explain.add_subcommand(
      "pipeline", "Draw a pipeline's schedule, on paper or as it ran, with its bubble and memory");
  const auto arguments = std::make_shared<ExplainPipelineArguments>();
  add_schedule_options(*command, *arguments);
  add_run_options(*command, *arguments);
  add_output_options(*command, *arguments);
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { explain_pipeline(*arguments); });
}

}  // namespace lockstep
