// PyTorch's programs, which `lockstep bench table --with-peers` measures beside ours.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>
#include <lockstep/cli/bench/table_ways.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep {

/// Where the programs lie: --peers, else ../share/lockstep/peers beside this program, as installed,
/// or the folder benchmarks/peers of the source tree that it was built in. ConfigError where there
/// are none.
std::filesystem::path find_peers(const BenchTableArguments& arguments);

/// The words that start the peer of `way`, which has a TablePeer. `settings` are those of the row
/// of ours with the same work; `report` is the file that the peer writes.
std::vector<std::string> peer_command(const BenchTableArguments& arguments, const TableWay& way,
                                      const TrainSettings& settings,
                                      const std::filesystem::path& peers,
                                      const std::filesystem::path& report);

/// Starts `command`, whose standard output and error go to `log`, and waits for its end. Error with
/// the last line of the log where it fails, and where it takes more than `seconds`.
void run_peer(const std::vector<std::string>& command, const std::filesystem::path& log,
              double seconds);

}  // namespace lockstep
