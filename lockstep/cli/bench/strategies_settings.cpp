#include <lockstep/cli/bench/strategies_settings.h>

#include <algorithm>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

constexpr int kRoundsOfWays = 5;
constexpr int kDefaultMicroBatches = 8;

struct ModelDefaults {
  const char* model;
  int batch;
  int image_size;
};
constexpr ModelDefaults kModelDefaults[] = {
    {"mnist", 128, 28}, {"resnet18", 32, 32}, {"resnet50", 32, 64}};

const ModelDefaults& defaults_of(const std::string& model) {
  for (const ModelDefaults& each : kModelDefaults) {
    if (model == each.model) return each;
  }
  OptionCheck(kBenchStep).one_of("--model", model, strategies_model_names());
  throw InternalError("bench step: a model's name without its defaults");
}

void refuse_options_of_ranks(const BenchStepArguments& arguments) {
  const std::string given = "--strategy " + arguments.strategy;
  refuse_step_option(arguments.nproc_per_node.has_value(),
                     given + " gives each way its own ranks; remove --nproc-per-node");
  refuse_step_option(arguments.batch_per_rank.has_value(),
                     given + " has one batch for all ranks together; give it as --batch");
  const std::string belongs = " belongs to --strategy " + join(step_strategy_names(), " or ");
  refuse_step_option(arguments.bucket_cap_mb.has_value(), "--bucket-cap-mb" + belongs);
  refuse_step_option(arguments.parameter_memory.has_value(), "--parameter-memory" + belongs);
  refuse_step_option(arguments.set_to_none, "--set-to-none" + belongs);
  refuse_step_option(arguments.find_unused_parameters, "--find-unused-parameters" + belongs);
  refuse_step_option(arguments.alone,
                     given + " has processes of its own for each way; remove --alone");
}

void require_even(const char* option, std::int64_t value) {
  if (value % 2 == 0) return;
  throw ConfigError(str(kBenchStep, ": ", option,
                        " must be even, because two ranks or replicas share it, got ", value));
}

int resolve_threads(std::optional<int> given) {
  const int processors = static_cast<int>(available_cpus().size());
  const int threads = given.value_or(std::max(2, processors - processors % 2));
  OptionCheck(kBenchStep).in_range("--threads", threads, 2, 1024);
  require_even("--threads", threads);
  return threads;
}

std::int64_t resolve_image_size(const BenchStepArguments& arguments) {
  refuse_step_option(arguments.image_size && arguments.model == "mnist",
                     "--image-size belongs to --model resnet18 or resnet50; the MNIST net takes "
                     "28x28 images");
  const int size = arguments.image_size.value_or(defaults_of(arguments.model).image_size);
  if (arguments.image_size) {
    OptionCheck(kBenchStep).in_range("--image-size", size, 32, 1024);
  }
  return size;
}

std::string resolve_cut(const BenchStepArguments& arguments) {
  refuse_step_option(arguments.cut && arguments.model == "mnist",
                     "--cut belongs to --model resnet18 or resnet50; the MNIST net has its own");
  if (arguments.model == "mnist") return "";
  const std::string cut = arguments.cut.value_or("balance");
  OptionCheck(kBenchStep).one_of("--cut", cut, {"balance", "even"});
  return cut;
}

bench::StrategyWork resolve_work(const BenchStepArguments& arguments) {
  const OptionCheck check(kBenchStep);
  bench::StrategyWork work;
  work.threads = resolve_threads(arguments.threads);
  work.batch = arguments.batch.value_or(defaults_of(arguments.model).batch);
  check.in_range("--batch", static_cast<double>(work.batch), 2, 1e6);
  require_even("--batch", work.batch);
  work.micro_batches = arguments.micro_batches.value_or(kDefaultMicroBatches);
  check.in_range("--micro-batches", work.micro_batches, 1, 1000);
  work.recompute = arguments.recompute;
  return work;
}

// The ways whose `member` is in `words`. ConfigError for a word that matches no way.
std::vector<bench::StrategyWay> ways_with(const std::vector<bench::StrategyWay>& ways,
                                          const char* option, const std::vector<std::string>& words,
                                          std::string bench::StrategyWay::* member,
                                          std::vector<std::string> allowed) {
  for (const bench::StrategyWay& way : ways) {
    if (std::find(allowed.begin(), allowed.end(), way.*member) == allowed.end()) {
      allowed.push_back(way.*member);
    }
  }
  for (const std::string& word : words) {
    OptionCheck(kBenchStep).one_of(option, word, allowed);
  }
  std::vector<bench::StrategyWay> chosen;
  for (const bench::StrategyWay& way : ways) {
    if (std::find(words.begin(), words.end(), way.*member) != words.end()) chosen.push_back(way);
  }
  return chosen;
}

std::vector<bench::StrategyWay> resolve_ways(const BenchStepArguments& arguments,
                                             const bench::StrategyWork& work) {
  const std::vector<bench::StrategyWay> every = bench::strategy_ways(work);
  const std::vector<std::string> words = bench::words_of(arguments.strategy);
  std::vector<bench::StrategyWay> ways =
      ways_with(every, "--strategy", words, &bench::StrategyWay::strategy, {"all"});
  if (std::find(words.begin(), words.end(), "all") != words.end()) ways = every;
  if (!arguments.only) return ways;
  return ways_with(ways, "--only", bench::words_of(*arguments.only), &bench::StrategyWay::name, {});
}

}  // namespace

std::vector<std::string> strategies_model_names() {
  std::vector<std::string> names;
  for (const ModelDefaults& each : kModelDefaults) names.emplace_back(each.model);
  return names;
}

bool compares_strategies(const BenchStepArguments& arguments) {
  const std::vector<std::string> words = bench::words_of(arguments.strategy);
  const std::vector<std::string>& in_one_set = step_strategy_names();
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(in_one_set.begin(), in_one_set.end(), word) == in_one_set.end();
  });
}

bench::BenchStrategiesSettings resolve_strategies(const BenchStepArguments& arguments) {
  refuse_options_of_ranks(arguments);
  const auto worker = worker_environment();
  if (worker) {
    throw ConfigError(str(kBenchStep, ": --strategy ", arguments.strategy,
                          " starts the ranks of each way itself; run it without ", worker->source));
  }
  bench::BenchStrategiesSettings settings;
  settings.model = arguments.model;
  settings.image_size = resolve_image_size(arguments);
  settings.cut = resolve_cut(arguments);
  settings.work = resolve_work(arguments);
  settings.ways = resolve_ways(arguments, settings.work);
  resolve_common(arguments, kRoundsOfWays, settings);
  check_output_file(kBenchStep, "--json", settings.json);
  return settings;
}

}  // namespace lockstep::cli
