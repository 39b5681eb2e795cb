#include <lockstep/cli/bench/step_settings.h>

#include <charconv>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/optim/options.h>

namespace lockstep::cli {
namespace {

constexpr const char* kWhole = "whole";
constexpr int kMostStepRanks = 1024;
constexpr int kRoundsOfRanks = 21;

double parse_mebibytes(const std::string& word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || value > 1e6) {
    throw ConfigError(str(kBenchStep, ": --bucket-cap-mb: expected sizes in MiB above 0, or ",
                          kWhole, ", separated by commas, such as 1,25; got '", word, "'"));
  }
  return value;
}

// If each rank had its own optimizer, all of them would step the one shared copy.
void check_memory(const std::string& strategy, const std::string& memory) {
  OptionCheck(kBenchStep).one_of("--parameter-memory", memory, parameter_memory_names());
  const char* const wrong = strategy == "zero1" ? "as-is" : "shared";
  if (memory == wrong) {
    throw ConfigError(str(kBenchStep, ": --parameter-memory ", wrong, " is not for --strategy ",
                          strategy, "; give auto, flat or ",
                          strategy == "zero1" ? "shared" : "as-is"));
  }
}

std::vector<bench::StepVariant> resolve_variants(const BenchStepArguments& arguments) {
  std::vector<bench::StepVariant> variants;
  const std::string bucket_cap_mb = arguments.bucket_cap_mb.value_or("25");
  const std::string parameter_memory = arguments.parameter_memory.value_or("auto");
  for (const std::string& strategy : bench::words_of(arguments.strategy)) {
    OptionCheck(kBenchStep).one_of("--strategy", strategy, step_strategy_names());
    for (const std::string& word : bench::words_of(bucket_cap_mb)) {
      for (const std::string& memory : bench::words_of(parameter_memory)) {
        check_memory(strategy, memory);
        bench::StepVariant variant;
        variant.strategy = strategy;
        if (word != kWhole) variant.bucket_cap_mb = parse_mebibytes(word);
        variant.parameter_memory = memory;
        variants.push_back(variant);
        if (!arguments.find_unused_parameters) continue;
        variant.find_unused_parameters = true;
        variants.push_back(variant);
      }
    }
  }
  return variants;
}

void refuse_options_of_strategies(const BenchStepArguments& arguments) {
  const std::string belongs = " belongs to " + strategies_of_own_processes();
  refuse_step_option(arguments.batch.has_value(), "--batch" + belongs + "; use --batch-per-rank");
  refuse_step_option(arguments.micro_batches.has_value(), "--micro-batches" + belongs);
  refuse_step_option(arguments.recompute, "--recompute" + belongs);
  refuse_step_option(arguments.image_size.has_value(), "--image-size" + belongs);
  refuse_step_option(arguments.cut.has_value(), "--cut" + belongs);
  refuse_step_option(arguments.only.has_value(), "--only" + belongs);
}

}  // namespace

const std::vector<std::string>& step_strategy_names() {
  static const std::vector<std::string> names = {"ddp", "zero1"};
  return names;
}

std::string strategies_of_own_processes() {
  return "--strategy all or a strategy other than " + join(step_strategy_names(), " and ");
}

const std::vector<std::string>& step_model_names() {
  static const std::vector<std::string> names = {"mnist", "resnet18"};
  return names;
}

const std::vector<std::string>& parameter_memory_names() {
  static const std::vector<std::string> names = {"auto", "as-is", "flat", "shared"};
  return names;
}

const std::vector<std::string>& step_precision_names() {
  static const std::vector<std::string> names = {"32", "bf16"};
  return names;
}

void refuse_step_option(bool given, const std::string& text) {
  if (given) throw ConfigError(str(kBenchStep, ": ", text));
}

void resolve_common(const BenchStepArguments& arguments, int default_rounds,
                    bench::CommonStepSettings& settings) {
  const OptionCheck check(kBenchStep);
  check.one_of("--backend", arguments.backend, comm::host_backend_names());
  settings.backend = arguments.backend;
  check.one_of("--precision", arguments.precision, step_precision_names());
  settings.precision = arguments.precision;
  check.one_of("--optimizer", arguments.optimizer, optimizer_names());
  settings.optimizer = arguments.optimizer;
  settings.rounds = arguments.rounds.value_or(default_rounds);
  check.in_range("--rounds", settings.rounds, 1, 1e6);
  if (arguments.steps) check.in_range("--steps", *arguments.steps, 1, 1e6);
  settings.steps = arguments.steps.value_or(0);
  settings.timeout = resolve_timeout(kBenchStep, arguments.timeout_seconds);
  if (arguments.json) settings.json = *arguments.json;
  if (arguments.trace) settings.trace = *arguments.trace;
}

bench::BenchStepSettings resolve(const BenchStepArguments& arguments) {
  const OptionCheck check(kBenchStep);
  refuse_options_of_strategies(arguments);
  bench::BenchStepSettings settings;
  check.one_of("--model", arguments.model, step_model_names());
  settings.model = arguments.model;
  settings.variants = resolve_variants(arguments);
  resolve_common(arguments, kRoundsOfRanks, settings);
  settings.worker = worker_environment();
  settings.world_size =
      resolve_world_size(kBenchStep, arguments.nproc_per_node, settings.worker, kMostStepRanks);
  settings.batch_per_rank = arguments.batch_per_rank.value_or(arguments.model == "mnist" ? 64 : 8);
  check.in_range("--batch-per-rank", static_cast<double>(settings.batch_per_rank), 1, 1e6);
  settings.threads = arguments.threads.value_or(1);
  check.in_range("--threads", settings.threads, 1, 1024);
  settings.set_to_none = arguments.set_to_none;
  settings.alone = arguments.alone;
  if (settings.speaks()) check_output_file(kBenchStep, "--json", settings.json);
  return settings;
}

}  // namespace lockstep::cli
