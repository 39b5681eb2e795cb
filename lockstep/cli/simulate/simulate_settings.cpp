#include <lockstep/cli/simulate/simulate_settings.h>

#include <charconv>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/simulate/trace_profile.h>

namespace lockstep::cli {
namespace {

constexpr int kMostSimulatedRanks = 1 << 20;

// Zero if the text is not a number of ranks.
int rank_count(const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value >= 1 && value <= kMostSimulatedRanks ? value
                                                                                           : 0;
}

simulate::BucketSizes parse_cap(const std::string& text) {
  double mebibytes = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, mebibytes);
  constexpr double kMostMebibytes = 1e6;
  if (error != std::errc() || stop != end || !(mebibytes > 0) || mebibytes > kMostMebibytes) {
    throw ConfigError(str(kSimulate,
                          ": --bucket-cap-mb: expected a number of MiB above 0, such as 25; got '",
                          text, "'"));
  }
  return simulate::bucket_sizes(mebibytes);
}

void refuse_to_replace_inputs(const SimulateArguments& arguments) {
  if (!arguments.json) return;
  std::vector<std::filesystem::path> inputs = {arguments.run};
  std::error_code ignored;
  if (std::filesystem::exists(arguments.network, ignored)) inputs.emplace_back(arguments.network);
  if (arguments.run_network) inputs.emplace_back(*arguments.run_network);
  require_no_input(kSimulate, "--json", *arguments.json, inputs);
}

// If every rank is alone on its host, each has its own parameters.
void check_shared_parameters(const SimulateSettings& settings) {
  const simulate::SimulationOptions& options = settings.options;
  if (!options.shares_parameters) return;
  if (options.strategy != "zero1") {
    throw ConfigError(str(kSimulate, ": --shared-parameters belongs to --strategy zero1"));
  }
  if (options.ranks_per_host > 1 || settings.network.wire == simulate::Wire::kSharedMemory) return;
  throw ConfigError(str(kSimulate,
                        ": --shared-parameters needs ranks that share a host: give "
                        "--ranks-per-host of 2 or more, or a --network measured over shm, got one "
                        "rank a host over ",
                        settings.network.name));
}

// The time that the run's own transfers took from its backward.
simulate::Network read_run_network(const std::string& file, const simulate::StepProfile& run) {
  simulate::Network network = simulate::read_network(file);
  const simulate::MeasuredNetwork& measured = *network.measured;
  if (measured.all_reduce.taken.empty()) {
    throw ConfigError(str(kSimulate, ": --run-network must be measured beside computing (bench ",
                          "comm --beside-computing), got ", file));
  }
  if (measured.ranks != run.ranks) {
    throw ConfigError(str(kSimulate, ": --run-network must be measured on the run's ",
                          amount_of(run.ranks, "rank"), ", got ", file, " of ", measured.ranks));
  }
  return network;
}

std::optional<report::Advice> disturbance_of(const std::string& run) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(run, ignored)) return std::nullopt;
  try {
    for (const report::Advice& each : report::advise(report::read_run_facts(run))) {
      if (each.limit == report::kOtherPrograms) return each;
    }
  } catch (const DataError&) {  // the run has no whole epoch
  }
  return std::nullopt;
}

// As validate(), but by the names of the command's options.
void check_simulated(const SimulateArguments& arguments) {
  const OptionCheck check(kSimulate);
  check.one_of("--strategy", arguments.strategy, simulate::simulated_strategy_names());
  check.one_of("--algorithm", arguments.algorithm, simulate::all_reduce_names());
  check.in_range("--ranks-per-host", arguments.ranks_per_host, 1, simulate::kMostRanksPerHost);
}

}  // namespace

const std::vector<std::string>& simulate_formats() {
  static const std::vector<std::string> formats{"table", "markdown"};
  return formats;
}

std::vector<int> parse_rank_list(const std::string& option, const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& word : bench::words_of(text)) {
    const std::size_t dots = word.find("..");
    const int first = rank_count(word.substr(0, dots));
    const int last = dots == std::string::npos ? first : rank_count(word.substr(dots + 2));
    if (first == 0 || last < first) {
      throw ConfigError(
          str(option, ": expected numbers of ranks from 1 to ", kMostSimulatedRanks,
              ", separated by commas, or A..B for the powers of two between them, such as 1..64; "
              "got '",
              word, "'"));
    }
    ranks.push_back(first);
    for (int power = 1; power < last; power *= 2) {
      if (power > first) ranks.push_back(power);
    }
    if (last > first) ranks.push_back(last);
  }
  return ranks;
}

SimulateSettings resolve(const SimulateArguments& arguments) {
  OptionCheck(kSimulate).one_of("--format", arguments.format, simulate_formats());
  SimulateSettings settings;
  settings.format = arguments.format;
  settings.ranks = parse_rank_list(str(kSimulate, ": --ranks"), arguments.ranks);
  if (arguments.json) settings.json = *arguments.json;
  check_output_file(kSimulate, "--json", settings.json);
  refuse_to_replace_inputs(arguments);
  check_simulated(arguments);
  simulate::SimulationOptions& options = settings.options;
  options.algorithm = arguments.algorithm;
  options.ranks_per_host = arguments.ranks_per_host;
  options.shares_parameters = arguments.shares_parameters;
  if (arguments.bucket_cap_mb) options.buckets = parse_cap(*arguments.bucket_cap_mb);
  options.strategy = arguments.strategy;
  simulate::validate(options, kSimulate);
  settings.network = simulate::find_network(str(kSimulate, ": --network"), arguments.network);
  settings.profile = simulate::find_step_profile(arguments.run);
  settings.disturbance = disturbance_of(arguments.run);
  check_shared_parameters(settings);
  if (!arguments.run_network) return settings;
  const simulate::Network run_network = read_run_network(*arguments.run_network, settings.profile);
  settings.profile = simulate::without_transfers(settings.profile, run_network);
  return settings;
}

}  // namespace lockstep::cli
