// lockstep data get NAME
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/data/data.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/report/download_bar.h>

namespace lockstep::cli {
namespace {

void get_data(const std::string& name) {
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  std::cout << find_or_download_data({.name = name, .progress = std::ref(bar)}).string() << '\n';
}

}  // namespace

void add_data_get_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "get", "Download a data set unless it is already there, and print its folder");
  const auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "Data set to get: " + join(known_data_names()))
      ->required()
      ->check(not_empty());
  command->callback([name] { get_data(*name); });
}

}  // namespace lockstep::cli
