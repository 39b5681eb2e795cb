// lockstep explain ALGORITHM
#include <lockstep/cli/explain/explain.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>

namespace lockstep::cli {

void add_explain_command(CLI::App& app) {
  CLI::App* explain =
      app.add_subcommand("explain", "Show what an algorithm does, as text and as a drawing");
  explain->require_subcommand(1);
  add_explain_pipeline_command(*explain);
  // Allows global options after the algorithm's name, too.
  for (CLI::App* algorithm : explain->get_subcommands([](const CLI::App*) { return true; })) {
    algorithm->fallthrough();
  }
}

}  // namespace lockstep::cli
