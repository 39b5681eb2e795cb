// lockstep explain pipeline
#include <unistd.h>

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/bench/pipeline/measured_pipeline.h>
#include <lockstep/cli/explain/explain.h>
#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/cli/explain/pipeline_svg.h>
#include <lockstep/cli/explain/pipeline_text.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>

namespace lockstep::cli {
namespace {

void explain_pipeline(const ExplainPipelineArguments& arguments) {
  const ExplainPipelineSettings settings = resolve(arguments);
  const PipelinePicture picture =
      settings.toys ? picture_of(settings, bench::measure_pipeline(settings.table, *settings.toys))
                    : picture_of(settings);
  std::cout << pipeline_text(picture, detect_terminal(STDOUT_FILENO).columns());
  if (!settings.csv.empty()) report::write_text_file(settings.csv, csv(settings.table));
  if (!settings.json.empty()) report::write_text_file(settings.json, picture_json(picture));
  if (!settings.svg.empty()) {
    report::write_text_file(settings.svg, pipeline_svg(picture));
    std::cout << "drawn in " << settings.svg.string() << '\n';
  }
  report::flush_output(std::cout);
}

}  // namespace

void add_explain_pipeline_command(CLI::App& explain) {
  CLI::App* command = explain.add_subcommand(
      "pipeline",
      "Draw a pipeline's schedule, as planned or as measured, with its bubble and memory");
  const auto arguments = std::make_shared<ExplainPipelineArguments>();
  add_pipeline_options(*command, *arguments);
  command->callback([arguments] { explain_pipeline(*arguments); });
}

}  // namespace lockstep::cli
