// The checked options of `lockstep bench table`, which define its rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// The options as given by the user; absent: the recipe or the machine decides.
struct BenchTableArguments {
  TrainArguments train;  ///< options common to all rows
  std::optional<std::string> ranks;
  std::string strategies = "ddp";
  std::string loaders = "native";
  std::optional<std::string> kernels;
  std::optional<std::string> batch_per_rank;
  std::int64_t epochs = 3;
  std::int64_t rounds = 1;
  std::optional<std::int64_t> max_steps;
  bool with_peers = false;
  std::string peer_python = "python3";
  std::optional<std::string> peer_workers;
  std::optional<std::string> peers;
  double peer_timeout_seconds = 1200;
  std::string format = "table";
  std::string json;
  std::string trace;  ///< folder for a trace of each Lockstep row; empty: none
};

struct BenchTableSettings {
  std::vector<bench::TableWay> ways;
  std::vector<std::string> notes;  ///< combinations without a row, and why
  std::int64_t rounds = 1;
  std::string format;
  std::string json;
};

/// The processors and GPUs that determine the default measurements.
struct TableMachine {
  std::int64_t processors = 1;
  std::int64_t gpus = 0;
};

/// Checks everything except what `train` checks for each row (arguments_of()). Throws ConfigError,
/// which names the option.
BenchTableSettings resolve_table(const BenchTableArguments& arguments, const TableMachine& machine);

/// The arguments of `lockstep train` for a row of Lockstep.
TrainArguments arguments_of(const BenchTableArguments& arguments, const bench::TableWay& way);

}  // namespace lockstep::cli
