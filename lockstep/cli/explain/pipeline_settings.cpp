#include <lockstep/cli/explain/pipeline_settings.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

namespace lockstep::cli {
namespace {

constexpr const char* kExplainPipeline = "explain pipeline";
constexpr int kMostPictureStages = 64;
constexpr int kMostPictureMicroBatches = 1000;
constexpr std::size_t kMostTableBytes = std::size_t{16} << 20;

void refuse_if(bool given, const char* text) {
  if (given) throw ConfigError(str(kExplainPipeline, ": ", text));
}

int resolve_workers(const std::string& schedule, int stages, std::optional<int> workers) {
  const bool several = schedule == "interleaved" || schedule == "zbv";
  const int count = workers.value_or(several ? std::max(1, stages / 2) : stages);
  OptionCheck(kExplainPipeline).in_range("--workers", count, 1, kMostPictureStages);
  const bool fits =
      schedule == "interleaved" ? stages % count == 0 : stages == count * (several ? 2 : 1);
  if (!fits) {
    throw ConfigError(str(kExplainPipeline, ": ", schedule, " has ",
                          schedule == "interleaved" ? "equally many stages"
                          : several                 ? "two stages"
                                                    : "one stage",
                          " on each worker, got --stages ", stages, " and ",
                          amount_of(count, "worker")));
  }
  return count;
}

pipeline::Table table_of_file(const std::filesystem::path& file) {
  std::vector<std::byte> bytes;
  read_file(file, kMostTableBytes, bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  pipeline::Table table = pipeline::table_of(text, file.stem().string());
  pipeline::check(table);
  const OptionCheck limits(str(kExplainPipeline, ": --table ", file.string()));
  limits.in_range("the number of stages", table.stages(), 1, kMostPictureStages);
  limits.in_range("the number of micro-batches", table.micro_batches, 1, kMostPictureMicroBatches);
  return table;
}

void resolve_table(const ExplainPipelineArguments& arguments, ExplainPipelineSettings& settings) {
  if (arguments.table) {
    refuse_if(
        arguments.schedule || arguments.stages || arguments.workers || arguments.micro_batches,
        "--schedule, --stages, --workers and --micro-batches cannot be combined with --table, "
        "which contains their values");
    settings.table = table_of_file(*arguments.table);
    return;
  }
  const OptionCheck check(kExplainPipeline);
  const std::string schedule = arguments.schedule.value_or("1f1b");
  check.one_of("--schedule", schedule, pipeline::schedule_names());
  const int stages = arguments.stages.value_or(4);
  check.in_range("--stages", stages, 1, kMostPictureStages);
  const int micro_batches = arguments.micro_batches.value_or(8);
  check.in_range("--micro-batches", micro_batches, 1, kMostPictureMicroBatches);
  const int workers = resolve_workers(schedule, stages, arguments.workers);
  settings.stages_per_worker = stages / workers;
  settings.table =
      pipeline::schedule_of(schedule, workers, micro_batches, *settings.stages_per_worker);
}

// Whether any option describes the computation of the stages.
bool describes_stages(const ExplainPipelineArguments& arguments) {
  return arguments.width || arguments.layers || arguments.samples || arguments.activation ||
         arguments.threads;
}

std::optional<bench::ToyStages> resolve_toys(const ExplainPipelineArguments& arguments) {
  if (!arguments.measured) {
    refuse_if(describes_stages(arguments) || arguments.wait || arguments.steps,
              "--wait, --width, --layers, --samples, --activation, --threads and --steps belong to "
              "--measured");
    return std::nullopt;
  }
  refuse_if(arguments.wait && describes_stages(arguments),
            "with --wait stages compute nothing; remove --width, --layers, --samples, --activation "
            "and --threads");
  refuse_if(arguments.message_cost.has_value(),
            "--measured measures what a message costs; remove --message-cost");
  const bench::ToyStages defaults;
  const bench::ToyStages toys = {
      .wait_microseconds = arguments.wait.value_or(0),
      .activation = arguments.activation.value_or(defaults.activation),
      .width = arguments.width.value_or(static_cast<int>(defaults.width)),
      .layers = arguments.layers.value_or(defaults.layers),
      .samples = arguments.samples.value_or(static_cast<int>(defaults.samples)),
      .threads = arguments.threads.value_or(defaults.threads),
      .steps = arguments.steps.value_or(defaults.steps)};
  const OptionCheck check(kExplainPipeline);
  if (arguments.wait) check.in_range("--wait", toys.wait_microseconds, 1, 1e6);
  check.one_of("--activation", toys.activation, {"relu", "gelu"});
  check.in_range("--width", static_cast<double>(toys.width), 1, 16384);
  check.in_range("--layers", toys.layers, 1, 1000);
  check.in_range("--samples", static_cast<double>(toys.samples), 1, 1e6);
  check.in_range("--threads", toys.threads, 1, 1024);
  check.in_range("--steps", toys.steps, 1, 1e6);
  return toys;
}

}  // namespace

ExplainPipelineSettings resolve(const ExplainPipelineArguments& arguments) {
  ExplainPipelineSettings settings;
  resolve_table(arguments, settings);
  settings.toys = resolve_toys(arguments);
  settings.message_cost = arguments.message_cost.value_or(0);
  OptionCheck(kExplainPipeline).in_range("--message-cost", settings.message_cost, 0, 1000);
  if (arguments.svg) settings.svg = *arguments.svg;
  if (arguments.csv) settings.csv = *arguments.csv;
  if (arguments.json) settings.json = *arguments.json;
  check_output_file(kExplainPipeline, "--svg", settings.svg);
  check_output_file(kExplainPipeline, "--csv", settings.csv);
  check_output_file(kExplainPipeline, "--json", settings.json);
  return settings;
}

}  // namespace lockstep::cli
