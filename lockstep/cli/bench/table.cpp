// lockstep bench table RECIPE
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include <ATen/Context.h>

#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/table/rows.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/row_options.h>
#include <lockstep/cli/bench/table_peers.h>
#include <lockstep/cli/bench/table_ways.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/cli/run_executable.h>
#include <lockstep/cli/train/train_data.h>
#include <lockstep/cli/train/train_rank.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/measuring/gpu_usage.h>
#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/text.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {
namespace {

constexpr int kInterrupted = 128;  // exit codes from here on report a signal

// A temporary file, removed with its guard.
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

// A row during the measurement.
struct MeasuredWay {
  bench::TableWay way;
  TrainSettings settings;         // settings of Lockstep's training, or of the peer's equal work
  std::vector<std::string> runs;  // records of the rounds
  std::string error;              // from the first failed round
};

class TableRun {
 public:
  TableRun(const BenchTableArguments& arguments, BenchTableSettings table)
      : arguments_(arguments), table_(std::move(table)) {
    if (arguments_.with_peers) {
      peers_ = find_peers(arguments_);
      find_executable(arguments_.peer_python, "bench table: --peer-python");
    }
    // All options are checked before the first measurement.
    for (const bench::TableWay& way : table_.ways) {
      ways_.push_back({.way = way, .settings = settings_of(way), .runs = {}, .error = {}});
      if (way.peer) peer_command(arguments_, way, ways_.back().settings, peers_, "");
    }
  }

  std::vector<bench::BenchTableRow> measure() {
    // Each round begins with a different row, because the speed of a machine drifts.
    for (std::int64_t round = 0; round < table_.rounds; ++round) {
      for (std::size_t i = 0; i < ways_.size(); ++i) {
        const std::size_t at = (static_cast<std::size_t>(round) + i) % ways_.size();
        tell_progress(round, i, ways_[at].way);
        measure_once(ways_[at]);
      }
    }
    std::vector<bench::BenchTableRow> rows;
    for (const MeasuredWay& way : ways_) rows.push_back(row_of(way));
    bench::set_efficiencies(rows);
    return rows;
  }

 private:
  TrainSettings settings_of(const bench::TableWay& way) const {
    TrainSettings settings = resolve(arguments_of(arguments_, way));
    settings.quiet = true;
    if (!arguments_.trace.empty()) {
      settings.trainer.trace.file = bench::trace_file_of(arguments_.trace, bench::name_of(way));
    }
    return settings;
  }

  void tell_progress(std::int64_t round, std::size_t row, const bench::TableWay& way) const {
    if (!detect_terminal(STDERR_FILENO).interactive) return;
    std::cerr << "bench table: ";
    if (table_.rounds > 1) std::cerr << "round " << round + 1 << " of " << table_.rounds << ", ";
    std::cerr << "row " << row + 1 << " of " << ways_.size() << ": " << bench::name_of(way)
              << std::endl;
  }

  // A failed row does not affect the others. An interruption ends the command, and so do data that
  // are unavailable to every row.
  void measure_once(MeasuredWay& way) {
    if (!way.error.empty()) return;
    try {
      const ReportFile report;
      if (way.way.peer) {
        const ReportFile log;
        run_peer(peer_command(arguments_, way.way, way.settings, peers_, report.path()), log.path(),
                 arguments_.peer_timeout_seconds);
      } else {
        train(way.settings, report.path());
      }
      way.runs.push_back(report.content());
    } catch (const ConfigError&) {
      throw;
    } catch (const CommandFailure& failure) {
      if (failure.exit_code() >= kInterrupted) throw;
      way.error = error_line(failure);
    } catch (const Error& error) {
      way.error = error_line(error);
    }
  }

  // A training of one row, in new processes and thus with an empty cache. Its time starts here, not
  // with the command.
  void train(TrainSettings settings, const std::filesystem::path& report) {
    settings.json = report;
    settings.started = Clock::now();
    settings.quiet = told_of_data_;
    const recipes::RecipeData data = load_recipe_data(settings, {});
    settings.quiet = true;
    told_of_data_ = true;
    require_success(
        launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                     [&] { train_rank(settings, [&](const LoadRequest&) { return data; }); }));
  }

  static bench::BenchTableRow row_of(const MeasuredWay& way) {
    if (way.error.empty()) {
      return bench::table_row_of(way.way, way.runs,
                                 static_cast<std::int64_t>(available_cpus().size()));
    }
    bench::BenchTableRow row;
    row.way = way.way;
    row.recipe = way.settings.recipe->name;
    row.ranks = static_cast<int>(way.way.ranks);
    row.threads_per_rank = static_cast<int>(way.way.threads_per_rank);
    row.batch_per_rank = way.way.batch_per_rank;
    row.global_batch = way.way.global_batch();
    row.error = way.error;
    return row;
  }

  const BenchTableArguments& arguments_;
  const BenchTableSettings table_;
  std::filesystem::path peers_;
  std::vector<MeasuredWay> ways_;
  bool told_of_data_ = false;
};

// Notes for readers of the rows.
bench::BenchTableNotes notes_of(const BenchTableArguments& arguments,
                                const BenchTableSettings& table,
                                const std::vector<bench::BenchTableRow>& rows,
                                std::optional<double> others) {
  bench::BenchTableNotes notes{
      .epochs = arguments.epochs, .max_steps = arguments.max_steps, .more = table.notes};
  std::string programs = "Lockstep with LibTorch " TORCH_VERSION;
  std::vector<std::string> peers;
  for (const bench::BenchTableRow& row : rows) {
    if (row.peer.empty() || std::ranges::find(peers, row.peer) != peers.end()) continue;
    peers.push_back(row.peer);
  }
  for (const std::string& peer : peers) programs += "; " + peer;
  notes.more.push_back(programs + ".");
  notes.more.push_back(
      str(amount_of(static_cast<std::int64_t>(available_cpus().size()), "processor"), " (",
          cpu_model_name(), "), ", amount_of(count_visible_gpus(), "GPU"), "; ",
          amount_of(table.rounds, "round"), " of ", arguments.epochs,
          arguments.epochs == 1 ? " epoch" : " epochs", " a row."));
  const std::string note = bench::other_programs_note(others);
  if (!note.empty()) notes.more.push_back(note);
  return notes;
}

void run_table(const BenchTableArguments& arguments) {
  if (worker_environment()) {
    throw ConfigError("bench table: it starts its ranks itself; run it without a launcher");
  }
  // NVML detects GPUs without a CUDA context, which would prevent forking the ranks. A CPU build of
  // LibTorch cannot use GPUs.
  const int gpus = at::globalContext().hasCUDART() ? count_visible_gpus() : 0;
  const BenchTableSettings table = resolve_table(
      arguments, {.processors = static_cast<std::int64_t>(available_cpus().size()), .gpus = gpus});
  check_trace_folder("bench table", arguments.trace);
  const OtherPrograms others;
  TableRun run(arguments, table);
  const std::vector<bench::BenchTableRow> rows = run.measure();
  const bench::BenchTableNotes notes = notes_of(arguments, table, rows, others.share());
  std::cout << bench::bench_table_text(rows, notes, arguments.format) << std::flush;
  if (!arguments.json.empty()) {
    report::write_text_file(arguments.json, bench::bench_table_text(rows, notes, "json"));
  }
  const auto failed = std::ranges::find_if(
      rows, [](const bench::BenchTableRow& row) { return !row.error.empty(); });
  if (failed != rows.end()) {
    throw Error(str("bench table: ", bench::name_of(failed->way), " failed: ", failed->error));
  }
}

// Which rows the table has, and how they are timed.
void add_row_options(CLI::App& command, BenchTableArguments& to) {
  const HelpGroup group(command, "Rows");
  command.add_option("--ranks", to.ranks,
                     "Numbers of ranks, separated by commas (default: 1,2,4,... up to this "
                     "machine's number of processors, or of GPUs)");
  command
      .add_option("--strategies", to.strategies,
                  "Strategies for the rows with several ranks, separated by commas: " +
                      join(strategy_names()) +
                      "; with dp, --ranks counts replicas; with single, --ranks multiplies the "
                      "number of threads")
      ->capture_default_str();
  command
      .add_option("--loaders", to.loaders,
                  "Loaders, separated by commas: " + join(loader_engine_names()))
      ->capture_default_str();
  command.add_option("--kernels", to.kernels,
                     "Kernels: fused (Lockstep's own), libtorch, or both separated by a comma; "
                     "each gets rows of its own (default: fused)");
  command.add_option(
      "--batch-per-rank", to.batch_per_rank,
      "Images per rank and step, or several such numbers separated by commas; each gets rows of "
      "its own (default: the recipe's batch)");
  command
      .add_option("--epochs", to.epochs,
                  "Epochs of each run; the first warms up, fills the cache of decoded images and "
                  "is not timed, unless it is the only one")
      ->transform(whole_number<std::int64_t>())
      ->capture_default_str();
  command
      .add_option("--rounds", to.rounds,
                  "Runs per row; the rows take turns, and medians are taken over all runs")
      ->transform(whole_number<std::int64_t>())
      ->capture_default_str();
  command
      .add_option("--max-steps", to.max_steps, "Maximum number of steps per epoch (default: all)")
      ->transform(whole_number<std::int64_t>());
}

void add_peer_options(CLI::App& command, BenchTableArguments& to) {
  const HelpGroup group(command, "Comparison with PyTorch");
  command.add_flag("--with-peers", to.with_peers,
                   "Also time PyTorch programs that do the same work, in turn with Lockstep");
  command
      .add_option("--peer-python", to.peer_python,
                  "Python interpreter with torch and torchvision, for --with-peers")
      ->type_name("PROGRAM")
      ->capture_default_str();
  command.add_option(
      "--peer-workers", to.peer_workers,
      "Workers of each PyTorch DataLoader, or several such numbers separated by commas; each gets "
      "rows of its own (default: 0)");
  command
      .add_option("--peer-timeout", to.peer_timeout_seconds,
                  "Timeout of a PyTorch program, in seconds")
      ->capture_default_str();
  command
      .add_option("--peers", to.peers,
                  "Folder of the PyTorch programs (default: the installed one)")
      ->type_name("DIR");
}

// Options of `lockstep train` that all rows share.
void add_training_options(CLI::App& command, TrainArguments& to) {
  add_recipe_options(command, to.of_recipe);
  const HelpGroup group(command, "Each run");
  command.add_option("--data", to.data, "Folder or pack of the data")->type_name("PATH");
  command.add_option("--accelerator", to.accelerator, "Device to compute on: auto, cpu or cuda")
      ->capture_default_str();
  command
      .add_option("--backend", to.backend, "Backend of the group: " + join(comm::backend_names()))
      ->capture_default_str();
  command
      .add_option("--precision", to.precision,
                  "Precision of the computation: " + join(precision_names()))
      ->capture_default_str();
  command
      .add_option("--threads", to.threads,
                  "Compute threads per rank, equal in all rows (default: the processors divided "
                  "by the largest number of ranks)")
      ->transform(whole_number<int>());
  command.add_option("--timeout", to.timeout_seconds, "Timeout of every wait, in seconds")
      ->capture_default_str();
}

void add_table_output_options(CLI::App& command, BenchTableArguments& to) {
  const HelpGroup group(command, "Output");
  command
      .add_option("--format", to.format,
                  "Format of the table: " + join(bench::bench_table_formats()))
      ->capture_default_str();
  add_rows_json_option(command, to.json);
  add_row_traces_option(command, to.trace,
                        "Record what all threads of all ranks do in the last ten steps of each row "
                        "of Lockstep, at a cost of less than 1%");
}

}  // namespace

void add_bench_table_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "table",
      "Time epochs of a recipe for each combination of strategy, loader, batch size and ranks");
  const auto to = std::make_shared<BenchTableArguments>();
  command
      ->add_option("RECIPE", to->train.recipe,
                   "What to train: " + join(recipes_with(has_own_model)))
      ->required();
  add_row_options(*command, *to);
  add_peer_options(*command, *to);
  add_training_options(*command, to->train);
  add_table_output_options(*command, *to);
  collect_values(*command, {"--ranks", "--strategies", "--loaders", "--kernels", "--batch-per-rank",
                            "--peer-workers"});
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run_table(*to); });
}

}  // namespace lockstep::cli
