// lockstep train RECIPE
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/commands.h>
#include <lockstep/cli/train/interrupt_line.h>
#include <lockstep/cli/train/train_data.h>
#include <lockstep/cli/train/train_rank.h>
#include <lockstep/cli/train/train_settings.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/report/run_record.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/terminal_bar.h>

namespace lockstep::cli {
namespace {

// The rank that keeps the record may have been killed, and then says that it is running.
void close_record_of_killed(const std::filesystem::path& out, const LaunchResult& result) {
  if (result.interrupted_by != 0) {
    close_record(out, "interrupted", "no checkpoint was saved: " + result.message);
  } else {
    close_record(out, "failed", result.message);
  }
}

void start_ranks(const TrainSettings& settings, const std::function<void()>& rank_main) {
  LaunchOptions options{.nproc_per_node = settings.world_size, .join_timeout = settings.timeout};
  if (settings.saves()) options.interrupt_grace = settings.shutdown_timeout;
  const LaunchResult result = launch_ranks(options, rank_main);
  if (settings.saves() && !result.ok()) close_record_of_killed(settings.out, result);
  // A killed rank leaves its progress bar on the line of the error.
  if (!result.ok() && detect_terminal(STDERR_FILENO).interactive) std::cerr << report::kClearLine;
  require_success(result);
}

void run(const TrainArguments& arguments) {
  const TrainSettings settings = resolve(arguments);
  if (settings.worker) {
    return train_rank(settings,
                      [&](const LoadRequest& r) { return load_recipe_data(settings, r); });
  }
  // Read before the ranks are forked, so that they share the pages.
  const recipes::RecipeData data = load_recipe_data(settings, {});
  const auto rank_main = [&] { train_rank(settings, [&](const LoadRequest&) { return data; }); };
  if (settings.world_size == 1) {
    const InterruptLine line;
    return rank_main();
  }
  start_ranks(settings, rank_main);
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a network, in one process or in several");
  const auto arguments = std::make_shared<TrainArguments>();
  add_train_options(*command, *arguments);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep::cli
