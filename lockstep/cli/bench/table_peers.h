// The PyTorch programs that `lockstep bench table --with-peers` measures for comparison.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>
#include <lockstep/cli/bench/table_ways.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// The folder of the programs: --peers, otherwise ../share/lockstep/peers relative to this program
/// if installed, or the folder benchmarks/peers of its source tree. Throws ConfigError if the
/// programs are not found.
std::filesystem::path find_peers(const BenchTableArguments& arguments);

/// The command line of the peer of `way`, which has a TablePeer. `settings` are those of the
/// Lockstep row with equal work; `report` is the file that the peer writes.
std::vector<std::string> peer_command(const BenchTableArguments& arguments,
                                      const bench::TableWay& way, const TrainSettings& settings,
                                      const std::filesystem::path& peers,
                                      const std::filesystem::path& report);

/// Starts `command`, with its standard output and error redirected to `log`, and waits for its end.
/// Throws an Error with the last line of the log if the command fails or takes more than `seconds`.
void run_peer(const std::vector<std::string>& command, const std::filesystem::path& log,
              double seconds);

}  // namespace lockstep::cli
