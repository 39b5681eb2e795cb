// `lockstep report`: one HTML file about training runs, from their folders and records.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/report/html/report_page.h>
#include <lockstep/report/html/run_data.h>
#include <lockstep/report/output.h>
#include <lockstep/report/run_place.h>
#include <lockstep/report/run_record.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr const char* kReportCommand = "report";

struct ReportArguments {
  std::vector<std::string> inputs{};
  std::string out{};
};

// The default of --out: a file in the first folder, or next to the first record and named after it.
std::filesystem::path default_page(const std::vector<std::filesystem::path>& inputs) {
  const auto is_folder = [](const std::filesystem::path& input) {
    std::error_code ignored;
    return std::filesystem::is_directory(input, ignored);
  };
  const auto folder = std::ranges::find_if(inputs, is_folder);
  if (folder != inputs.end()) return *folder / "report.html";
  const auto record = std::ranges::find_if(inputs, html::holds_run_record);
  if (record == inputs.end()) return inputs.front() / "report.html";
  const report::RunPlace place = report::place_of_run(*record);
  if (!place.folder.empty()) return place.folder / "report.html";
  return std::filesystem::path(place.record).replace_extension(".html");
}

void write_report(const ReportArguments& arguments) {
  const std::vector<std::filesystem::path> inputs(arguments.inputs.begin(), arguments.inputs.end());
  const std::filesystem::path out =
      arguments.out.empty() ? default_page(inputs) : std::filesystem::path(arguments.out);
  require_no_input(kReportCommand, "--out", out, inputs);
  // Checks first that the folder contains a run, so that a missing folder is reported as such,
  // before the output.
  const std::string page = html::report_page(inputs, command_line());
  write_file_atomically(check_output_files(kReportCommand, "--out", out, ""), page);
  std::cout << out.string() << ": " << report::bytes_text(static_cast<double>(page.size()))
            << "; open it in a browser\n";
  report::flush_output(std::cout);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      kReportCommand,
      "Write an HTML page about runs: their curves, a traced step, and what limited them");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("RUN", arguments->inputs,
                   "Runs to compare, given as their folders (train --out DIR) or records (train "
                   "--json FILE); files written by bench table --json add a chart of scaling")
      ->type_name("")
      ->required()
      ->check(not_empty());
  command
      ->add_option(
          "--out", arguments->out,
          "HTML file to write (default: report.html in the first run's folder, or the name "
          "of the first record with .html)")
      ->type_name("FILE")
      ->check(not_empty());
  command->callback([arguments] { write_report(*arguments); });
}

}  // namespace lockstep::cli
