// The checked options of `lockstep simulate`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/simulate/network.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/simulate/step_profile.h>

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
};

struct SimulateSettings {
  simulate::StepProfile profile;  ///< without the run's own transfers if --run-network is given
  simulate::Network network;
  std::vector<int> ranks;  ///< at least one
  simulate::SimulationOptions options;
  std::string format;
  std::filesystem::path json;
};

/// "table", "markdown".
const std::vector<std::string>& simulate_formats();

/// Parses "8", "1,2,12", or "1..4096": both ends and the powers of two between them; several with
/// commas. ConfigError for other text, and for numbers outside of 1 to 2^20.
std::vector<int> parse_rank_list(const std::string& option, const std::string& text);

/// Reads the run and the networks. ConfigError, naming the option, for a --json that would replace
/// an input file, a --run-network that was not measured with the run's number of ranks or not with
/// --beside-computing, --shared-parameters if no ranks share a host, and other invalid values.
/// DataError names the file.
SimulateSettings resolve(const SimulateArguments& arguments);

}  // namespace lockstep::cli
