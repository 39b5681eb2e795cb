// The options of `lockstep bench comm`, and the settings that follow from them.
#pragma once

#include <optional>
#include <string>

#include <lockstep/bench/collectives/settings.h>

namespace lockstep::cli {

inline constexpr const char* kBenchComm = "bench comm";  ///< begins its error messages

/// The options as given by the user.
struct BenchCommArguments {
  std::string collective = "all_reduce";
  std::string algorithm = "auto";
  std::string backend = "auto";
  std::optional<int> nproc_per_node;
  std::string sizes;  ///< empty: 4 B to 256 MiB
  std::string dtype = "float32";
  bool symmetric = false;
  bool private_memory = false;
  bool beside_computing = false;
  std::optional<int> repetitions;
  std::optional<double> seconds;
  std::optional<std::string> json;
  std::optional<std::string> trace;
  double timeout_seconds = 60;

  bool explain = false;
  std::optional<std::string> bytes;
  std::optional<std::string> out;
};

/// Checks everything that can be checked before a rank exists. Throws ConfigError, which names the
/// option, if a value is invalid or if the option would have no effect in combination with the
/// others.
bench::BenchCommSettings resolve(const BenchCommArguments& arguments);

}  // namespace lockstep::cli
