// The checked options of `lockstep simulate`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/report/advice/advice.h>
#include <lockstep/simulate/network.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/simulate/step_profile.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

inline constexpr const char* kSimulate = "simulate";  ///< begins messages

/// The options as given by the user.
struct SimulateArguments {
  std::string run;
  std::string ranks = "1..64";
  std::string network = "10gbit";
  std::optional<std::string> run_network;
  int ranks_per_host = 1;
  std::string strategy = "ddp";
  std::string algorithm = "auto";
  std::optional<std::string> bucket_cap_mb;  ///< absent: the run's buckets
  bool shares_parameters = false;
  std::string format = "table";
  std::optional<std::string> json;

  bool operator==(const SimulateArguments&) const = default;
};

/// Adds RUN and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_simulate_options(CLI::App& command, SimulateArguments& to);

struct SimulateSettings {
  simulate::StepProfile profile;  ///< without the run's own transfers if --run-network is given
  /// What `lockstep doctor` says of other programs that slowed the run down; absent if there were
  /// none, and for a profile or a trace without its run.
  std::optional<report::Advice> disturbance{};
  simulate::Network network;
  std::vector<int> ranks;  ///< at least one
  simulate::SimulationOptions options;
  std::string format;
  std::filesystem::path json;
};

/// "table", "markdown".
const std::vector<std::string>& simulate_formats();

/// Parses "8", "1,2,12", or "1..4096" (both ends and the powers of two between them), or several of
/// these separated by commas. Throws ConfigError for other text, and for numbers outside 1 to 2^20.
std::vector<int> parse_rank_list(const std::string& option, const std::string& text);

/// Reads the run and the networks. Throws ConfigError, which names the option, if --json would
/// replace an input file, if --run-network was measured with another number of ranks than the run's
/// or without --beside-computing, if --shared-parameters is given but no ranks share a host, and
/// for other invalid values. Throws DataError, which names the file, if a file cannot be used.
SimulateSettings resolve(const SimulateArguments& arguments);

}  // namespace lockstep::cli
