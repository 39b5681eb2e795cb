// lockstep data check SOURCE
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/data/data.h>
#include <lockstep/cli/data_choice.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/options.h>
#include <lockstep/data/preparation/check_images.h>
#include <lockstep/report/image_bar.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr const char* kDataCheck = "data check";

struct CheckArguments {
  DataChoice choice;
  std::optional<int> threads;
  std::string json;
};

ImagesCheck check(const ImageDataset& dataset, int threads) {
  report::ImageBar bar(std::cerr, detect_terminal(STDERR_FILENO), "checking", dataset.size());
  return check_images(dataset, {.threads = threads, .progress = std::ref(bar)});
}

std::string counted(std::size_t count, const char* what) {
  return str(report::count_text(static_cast<double>(count)), ' ', what);
}

void write_json(const CheckArguments& arguments, const ImageDataset& dataset,
                const ImagesCheck& result, int threads, double seconds) {
  using Json = nlohmann::ordered_json;
  const auto listed = [](const std::vector<CorruptImage>& images) {
    Json list = Json::array();
    for (const CorruptImage& image : images) {
      list.push_back({{"index", image.index}, {"reason", with_flags(image.reason)}});
    }
    return list;
  };
  const Json json{{"source", arguments.choice.source},
                  {"name", dataset.name()},
                  {"images", result.images},
                  {"damaged", listed(result.corrupt)},
                  {"odd", listed(result.odd)},
                  {"threads", threads},
                  {"seconds", seconds}};
  report::write_text_file(arguments.json, bench::json_text(json));
}

void run(const CheckArguments& arguments) {
  const int threads = arguments.threads.value_or(static_cast<int>(available_cpus().size()));
  OptionCheck(kDataCheck).in_range("--threads", threads, 0, 1024);
  check_output_file(kDataCheck, "--json", arguments.json);
  DataChoice choice = arguments.choice;
  choice.keep_unreadable = true;  // the check lists them
  const ImageDataset dataset = open_data(kDataCheck, choice);
  const Clock::time_point begin = Clock::now();
  const ImagesCheck result = check(dataset, threads);
  const double seconds = seconds_since(begin);
  for (const CorruptImage& image : result.corrupt)
    std::cout << "damaged  " << with_flags(image.reason) << '\n';
  for (const CorruptImage& image : result.odd)
    std::cout << "odd      " << with_flags(image.reason) << '\n';
  const std::string total = report::count_of(result.images, "image");
  std::cout << dataset.name() << ": " << total << ", " << counted(result.corrupt.size(), "damaged")
            << (result.odd.empty() ? "" : ", " + counted(result.odd.size(), "odd but complete"))
            << ", in " << report::seconds_text(seconds) << '\n';
  if (!arguments.json.empty()) write_json(arguments, dataset, result, threads, seconds);
  if (result.corrupt.empty()) return;
  throw CommandFailure(
      1, str(kDataCheck, ": ", counted(result.corrupt.size(), "of "), total,
             " cannot be decoded; remove ", result.corrupt.size() == 1 ? "it" : "them",
             ", or train and pack with --on-corrupt-image skip"));
}

}  // namespace

void add_data_check_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "check", "Decode every image once and list the damaged ones (exit code 1 if there are any)");
  const auto to = std::make_shared<CheckArguments>();
  add_data_choice_options(*command, to->choice);
  command
      ->add_option("--threads", to->threads,
                   "Threads that decode images (default: one for each processor available)")
      ->transform(whole_number<int>());
  command->add_option("--json", to->json, "Also write the findings to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
