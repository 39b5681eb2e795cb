#include <lockstep/cli/bench/table_ways.h>

#include <algorithm>
#include <charconv>

#include <lockstep/bench/table/rows.h>
#include <lockstep/bench/word_list.h>
#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::cli {
namespace {

constexpr const char* kTableCommand = "bench table";
constexpr double kMostRanks = 1024;

// Refuses repeated values, which would give indistinguishable rows.
template <class Value>
void require_distinct(const char* option, const std::vector<Value>& values,
                      const std::string& text) {
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (std::find(values.begin(), value, *value) == value) continue;
    throw ConfigError(lockstep::str(kTableCommand, ": ", option, " must name each value once, got ",
                                    *value, " twice in '", text, "'"));
  }
}

std::vector<std::int64_t> parse_counts(const char* option, const std::string& text, double least,
                                       double most) {
  std::vector<std::int64_t> counts;
  for (const std::string& word : bench::words_of(text)) {
    std::int64_t count = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, count);
    if (error != std::errc() || stop != end) {
      throw ConfigError(lockstep::str(
          kTableCommand, ": ", option,
          ": expected whole numbers separated by commas, such as 1,2,4; got '", text, "'"));
    }
    OptionCheck(kTableCommand).in_range(option, static_cast<double>(count), least, most);
    counts.push_back(count);
  }
  require_distinct(option, counts, text);
  return counts;
}

std::vector<std::string> parse_names(const char* option, const std::string& text,
                                     const std::vector<std::string>& known) {
  const std::vector<std::string> names = bench::words_of(text);
  for (const std::string& name : names) OptionCheck(kTableCommand).one_of(option, name, known);
  require_distinct(option, names, text);
  return names;
}

// 1, 2, 4, ... up to the machine's number.
std::vector<std::int64_t> usual_ranks(const TableMachine& machine, bool on_gpus) {
  std::vector<std::int64_t> ranks;
  const std::int64_t most = std::max<std::int64_t>(on_gpus ? machine.gpus : machine.processors, 1);
  for (std::int64_t count = 1; count <= most; count *= 2) ranks.push_back(count);
  if (ranks.back() != most) ranks.push_back(most);
  return ranks;
}

// The values in which rows differ.
struct TableAxes {
  std::vector<std::int64_t> batches;
  std::vector<std::int64_t> ranks;
  std::vector<std::string> strategies;
  std::vector<std::string> loaders;
  std::vector<std::string> kernels;
  std::vector<std::int64_t> peer_workers;  // empty: PyTorch is not measured
};

// Why `way` cannot be measured; empty if it can.
std::string obstacle(const bench::TableWay& way, const TableMachine& machine) {
  const std::int64_t threads = way.ranks * way.threads_per_rank;
  if (way.strategy == "single" && way.ranks > 1 && threads > machine.processors) {
    return lockstep::str("one process has no ", threads, " processors here");
  }
  if (way.strategy == "hybrid" && (way.ranks < 4 || way.ranks % 2 != 0)) {
    return "two or more pipelines of two stages need an even number of ranks, at least 4";
  }
  return "";
}

// PyTorch's counterpart of a row of Lockstep; nothing if there is none.
std::optional<bench::TablePeer> peer_of(const bench::TableWay& way, bool on_gpus) {
  const bool has_loader = way.loader == "native" || way.loader == "dali";
  const bool has_strategy =
      way.strategy == "single" || way.strategy == "ddp" || (way.strategy == "dp" && on_gpus);
  if (!has_loader || !has_strategy) return std::nullopt;
  return bench::TablePeer{.strategy = way.strategy,
                          .loader = way.loader == "dali" ? "dali" : "dataloader"};
}

// The rows in the order of display.
class TableWays {
 public:
  TableWays(TableAxes axes, const TableMachine& machine, bool on_gpus, std::int64_t threads)
      : axes_(std::move(axes)), machine_(machine), on_gpus_(on_gpus), threads_(threads) {
    for (const std::int64_t batch : axes_.batches) {
      for (const std::int64_t count : axes_.ranks)
        add_all({.ranks = count, .batch_per_rank = batch});
    }
  }

  std::vector<bench::TableWay> ways;
  std::vector<std::string> notes;

 private:
  // Adds the rows of one number of ranks and one batch. A single rank trains with strategy single.
  void add_all(bench::TableWay way) {
    way.threads_per_rank = threads_;
    const std::vector<std::string> alone = {"single"};
    for (const std::string& strategy : way.ranks == 1 ? alone : axes_.strategies) {
      for (const std::string& loader : axes_.loaders) {
        way.strategy = strategy;
        way.loader = loader;
        add_or_note(way);
      }
    }
  }

  void add_or_note(bench::TableWay way) {
    const std::string why_not = obstacle(way, machine_);
    if (!why_not.empty()) {
      notes.push_back(lockstep::str("no row for ", bench::name_of(way), ": ", why_not));
      return;
    }
    for (const std::string& kernels : axes_.kernels) {
      way.fused_kernels = kernels == "fused";
      ways.push_back(way);
    }
    way.fused_kernels = true;
    way.peer = peer_of(way, on_gpus_);
    if (way.peer) add_peers(way);
  }

  void add_peers(bench::TableWay way) {
    for (const std::int64_t workers : axes_.peer_workers) {
      way.peer->workers = static_cast<int>(workers);
      ways.push_back(way);
      if (way.peer->loader == "dali") return;  // DALI uses threads instead
    }
  }

  const TableAxes axes_;
  const TableMachine machine_;
  const bool on_gpus_;
  const std::int64_t threads_;
};

void check_numbers(const BenchTableArguments& arguments) {
  const OptionCheck check(kTableCommand);
  check.in_range("--epochs", static_cast<double>(arguments.epochs), 1, 1e6);
  check.in_range("--rounds", static_cast<double>(arguments.rounds), 1, 1000);
  check.in_range("--threads", arguments.train.threads, 0, 4096);
  check.in_range("--peer-timeout", arguments.peer_timeout_seconds, 1, 1e6);
  if (arguments.max_steps) {
    check.in_range("--max-steps", static_cast<double>(*arguments.max_steps), 1, 1e9);
  }
}

std::vector<std::string> parse_kernels(const BenchTableArguments& arguments,
                                       const recipes::Recipe& recipe) {
  if (arguments.kernels && !recipe.has_fused_kernels) {
    throw ConfigError(lockstep::str(kTableCommand, ": --kernels has no effect on ", recipe.name,
                                    ", which has no fused kernels; remove --kernels"));
  }
  return parse_names("--kernels", arguments.kernels.value_or("fused"), {"fused", "libtorch"});
}

// PyTorch's programs have the networks of the recipes, and cannot run an exported one.
void require_peers(const BenchTableArguments& arguments, const recipes::Recipe& recipe) {
  if (!recipe.needs_program && !arguments.train.of_recipe.program) return;
  throw ConfigError(lockstep::str(
      kTableCommand, ": --with-peers cannot be combined with ",
      recipe.needs_program ? "recipe " + recipe.name : "--program",
      ", because PyTorch's programs train only the recipes' own networks; remove --with-peers"));
}

std::vector<std::int64_t> parse_peer_workers(const BenchTableArguments& arguments,
                                             const recipes::Recipe& recipe) {
  if (arguments.with_peers) {
    require_peers(arguments, recipe);
    return parse_counts("--peer-workers", arguments.peer_workers.value_or("0"), 0, 1024);
  }
  if (arguments.peer_workers) {
    throw ConfigError("bench table: --peer-workers has no effect without --with-peers");
  }
  return {};
}

TableAxes parse_axes(const BenchTableArguments& arguments, const TableMachine& machine,
                     bool on_gpus) {
  const recipes::Recipe& recipe = recipes::find_recipe(arguments.train.recipe);
  const std::string usual_batch = std::to_string(recipe.defaults.global_batch);
  return {.batches = parse_counts("--batch-per-rank",
                                  arguments.batch_per_rank.value_or(usual_batch), 1, 1e6),
          .ranks = arguments.ranks ? parse_counts("--ranks", *arguments.ranks, 1, kMostRanks)
                                   : usual_ranks(machine, on_gpus),
          .strategies = parse_names("--strategies", arguments.strategies, strategy_names()),
          .loaders = parse_names("--loaders", arguments.loaders, loader_engine_names()),
          .kernels = parse_kernels(arguments, recipe),
          .peer_workers = parse_peer_workers(arguments, recipe)};
}

}  // namespace

BenchTableSettings resolve_table(const BenchTableArguments& arguments,
                                 const TableMachine& machine) {
  check_numbers(arguments);
  const OptionCheck check(kTableCommand);
  check.one_of("--format", arguments.format, bench::bench_table_formats());
  check_accelerator(kTableCommand, arguments.train.accelerator);
  check_output_file(kTableCommand, "--json", arguments.json);
  const bool on_gpus = arguments.train.accelerator == "cuda" ||
                       (arguments.train.accelerator == "auto" && machine.gpus > 0);
  TableAxes axes = parse_axes(arguments, machine, on_gpus);
  // If one rank had all processors to itself, every other row would look inefficient.
  const std::int64_t share = machine.processors / std::ranges::max(axes.ranks);
  const std::int64_t threads =
      arguments.train.threads > 0 ? arguments.train.threads : std::max<std::int64_t>(share, 1);
  TableWays rows(std::move(axes), machine, on_gpus, threads);
  if (rows.ways.empty()) {
    throw ConfigError(
        lockstep::str(kTableCommand, ": there is nothing to measure: ", join(rows.notes, "; ")));
  }
  return {.ways = std::move(rows.ways),
          .notes = std::move(rows.notes),
          .rounds = arguments.rounds,
          .format = arguments.format,
          .json = arguments.json};
}

TrainArguments arguments_of(const BenchTableArguments& arguments, const bench::TableWay& way) {
  TrainArguments row = arguments.train;
  row.max_epochs = arguments.epochs;
  row.limits.limit_train_batches = arguments.max_steps;
  row.limits.limit_val_batches = 0;
  row.strategy = way.strategy;
  row.loader = way.loader;
  row.no_fused_kernels = !way.fused_kernels;
  row.batch_size = way.global_batch();
  row.threads = static_cast<int>(way.threads_per_rank);
  row.nproc_per_node = static_cast<int>(way.ranks);
  if (way.strategy == "single" || way.strategy == "dp") {
    row.nproc_per_node = 1;
    row.threads = static_cast<int>(way.threads_per_rank * way.ranks);
  }
  if (way.strategy == "dp") row.devices = static_cast<int>(way.ranks);
  if (way.strategy == "pipeline") row.stages = static_cast<int>(way.ranks);
  return row;
}

}  // namespace lockstep::cli
