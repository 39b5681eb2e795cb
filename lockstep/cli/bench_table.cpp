// lockstep bench table RECIPE
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/cli/bench.h>
#include <lockstep/cli/bench_options.h>
#include <lockstep/cli/bench_table_rows.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/train_data.h>
#include <lockstep/cli/train_rank.h>
#include <lockstep/cli/word_list.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/report/json_report.h>

namespace lockstep {
namespace {

constexpr const char* kTableCommand = "bench table";

struct BenchTableArguments {
  TrainArguments train;  // what all rows have in common
  std::string ranks = "1,2,3";
  std::optional<std::string> batch_per_rank;
  std::int64_t epochs = 3;
  std::optional<std::int64_t> max_steps;
  std::string format = "table";
  std::string json;
};

// A file of our own, which is gone when its guard is.
class ReportFile {
 public:
  ReportFile() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-table-XXXXXX").string();
    const int file = mkstemp(name.data());
    if (file < 0) throw Error(str("bench table: cannot create ", name, ": ", errno_text(errno)));
    close(file);
    path_ = name;
  }
  ~ReportFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

std::vector<std::int64_t> parse_counts(const char* option, const std::string& text, double most) {
  std::vector<std::int64_t> counts;
  for (const std::string& word : words_of(text)) {
    std::int64_t count = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, count);
    if (error != std::errc() || stop != end) {
      throw ConfigError(lockstep::str(kTableCommand, ": ", option,
                                      " must be whole numbers with commas, as in 1,2,3, got '",
                                      text, "'"));
    }
    OptionCheck(kTableCommand).in_range(option, static_cast<double>(count), 1, most);
    counts.push_back(count);
  }
  return counts;
}

// The threads of a rank in every row: its share of the processors among the most ranks. A rank that
// had all processors to itself would make every other row look inefficient.
int threads_of_all_rows(const std::vector<std::int64_t>& ranks) {
  const auto processors = static_cast<std::int64_t>(available_cpus().size());
  return static_cast<int>(std::max<std::int64_t>(processors / std::ranges::max(ranks), 1));
}

// A training of a row's own, which starts with processes of its own, and so with an empty cache.
BenchTableRow measure_row(TrainArguments arguments, bool tells_of_data) {
  const ReportFile report;
  arguments.json = report.path().string();
  TrainSettings settings = resolve(arguments);
  settings.quiet = !tells_of_data;
  const RecipeData data = load_recipe_data(settings, {});
  settings.quiet = true;
  require_success(
      launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                   [&] { train_rank(settings, [&](const LoadRequest&) { return data; }); }));
  return table_row_of(report.content());
}

void run_table(BenchTableArguments arguments) {
  if (worker_environment()) {
    throw ConfigError("bench table: it starts its ranks itself; run it without a launcher");
  }
  const OptionCheck check(kTableCommand);
  check.one_of("--format", arguments.format, bench_table_formats());
  check.in_range("--epochs", static_cast<double>(arguments.epochs), 1, 1e6);
  if (arguments.max_steps) {
    check.in_range("--max-steps", static_cast<double>(*arguments.max_steps), 1, 1e9);
  }
  check_output_file(kTableCommand, "--json", arguments.json);
  const auto ranks = parse_counts("--ranks", arguments.ranks, 1024);
  const std::int64_t usual = find_recipe(arguments.train.recipe).defaults.global_batch;
  const auto batches = parse_counts("--batch-per-rank",
                                    arguments.batch_per_rank.value_or(std::to_string(usual)), 1e6);
  if (arguments.train.threads == 0) arguments.train.threads = threads_of_all_rows(ranks);
  arguments.train.max_epochs = arguments.epochs;
  arguments.train.limits.limit_train_batches = arguments.max_steps;
  arguments.train.limits.limit_val_batches = 0;
  std::vector<BenchTableRow> rows;
  for (const std::int64_t batch : batches) {
    for (const std::int64_t count : ranks) {
      TrainArguments row = arguments.train;
      row.nproc_per_node = static_cast<int>(count);
      row.batch_size = batch * count;
      rows.push_back(measure_row(row, rows.empty()));
    }
  }
  set_efficiencies(rows);
  std::cout << bench_table_text(rows, arguments.format) << std::flush;
  if (!arguments.json.empty()) write_json_file(arguments.json, bench_table_text(rows, "json"));
}

std::string recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return join(names);
}

}  // namespace

void add_bench_table_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "table", "Time an epoch of a recipe: ranks, batch per rank, iterations, seconds");
  const auto to = std::make_shared<BenchTableArguments>();
  command->add_option("RECIPE", to->train.recipe, "What to train: " + recipe_names())
      ->required()
      ->type_name("RECIPE");
  command->add_option("--ranks", to->ranks, "Numbers of processes, with commas, a row for each")
      ->capture_default_str();
  command->add_option("--batch-per-rank", to->batch_per_rank,
                      "Images of a rank's step, several with commas for rows each (default: the "
                      "recipe's batch)");
  command
      ->add_option("--epochs", to->epochs,
                   "Epochs of each row: the seconds are the median without the first, which warms "
                   "up and fills the cache of decoded images")
      ->transform(whole_number<std::int64_t>())
      ->capture_default_str();
  command->add_option("--max-steps", to->max_steps, "Steps of an epoch, at most (default: all)")
      ->transform(whole_number<std::int64_t>());
  add_recipe_options(*command, to->train.of_recipe);
  command->add_option("--data", to->train.data, "Folder of the data")->type_name("DIR");
  command->add_option("--accelerator", to->train.accelerator, "auto, cpu or cuda")
      ->capture_default_str();
  command->add_option("--backend", to->train.backend, "auto, shm, gloo, hierarchical or nccl")
      ->capture_default_str();
  command->add_option("--precision", to->train.precision, "32, bf16 or 16")->capture_default_str();
  command
      ->add_option("--threads", to->train.threads,
                   "Compute threads per rank, the same in all rows (default: a rank's share of the "
                   "processors among the most ranks)")
      ->transform(whole_number<int>());
  command->add_option("--timeout", to->train.timeout_seconds, "Deadline of every wait, in seconds")
      ->capture_default_str();
  command->add_option("--format", to->format, join(bench_table_formats()))->capture_default_str();
  command->add_option("--json", to->json, "Also write the rows, into a folder that exists")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run_table(*to); });
}

}  // namespace lockstep
