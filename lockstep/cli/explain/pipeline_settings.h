// The checked options of `lockstep explain pipeline`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/bench/pipeline/settings.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// The options as given by the user.
struct ExplainPipelineArguments {
  std::optional<std::string> schedule{};  ///< absent: 1f1b
  std::optional<int> stages{};            ///< absent: 4
  std::optional<int> workers{};           ///< absent: the number that the schedule needs
  std::optional<int> micro_batches{};     ///< absent: 8
  std::optional<std::string> table{};     ///< a file that replaces all of these
  std::optional<double> message_cost{};
  bool measured = false;
  std::optional<int> wait{};
  std::optional<std::string> activation{};
  std::optional<int> width{};
  std::optional<int> layers{};
  std::optional<int> samples{};
  std::optional<int> threads{};
  std::optional<int> steps{};
  std::optional<std::string> svg{};
  std::optional<std::string> csv{};
  std::optional<std::string> json{};

  bool operator==(const ExplainPipelineArguments&) const = default;
};

/// Adds all options to `command`; parsing writes them into `to`, which must outlive it.
void add_pipeline_options(CLI::App& command, ExplainPipelineArguments& to);

struct ExplainPipelineSettings {
  /// The checked table of the schedule, without messages, or the user's own.
  pipeline::Table table{};
  /// The stages on each worker by a named schedule; absent for the user's own table.
  std::optional<int> stages_per_worker{};
  double message_cost = 0;
  std::optional<bench::ToyStages> toys{};  ///< the stages to measure
  std::filesystem::path svg{}, csv{}, json{};
};

/// Checks everything that can be checked before anything runs, and reads the table. Throws
/// ConfigError, which names the option, and DataError if a file cannot be read.
ExplainPipelineSettings resolve(const ExplainPipelineArguments& arguments);

}  // namespace lockstep::cli
