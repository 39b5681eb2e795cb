#include <lockstep/parallel/pipeline/pipeline_options.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

namespace lockstep {

std::string_view schedule_name(Schedule schedule) {
  const std::vector<std::string>& names = pipeline::schedule_names();
  const auto place = static_cast<std::size_t>(schedule);
  if (place >= names.size()) throw ConfigError("Pipeline: unknown schedule");
  return names[place];
}

const std::vector<std::string>& schedule_names() { return pipeline::schedule_names(); }

Schedule schedule_named(std::string_view name) {
  const std::vector<std::string>& names = schedule_names();
  OptionCheck("Pipeline").one_of("schedule", name, names);
  return static_cast<Schedule>(std::find(names.begin(), names.end(), name) - names.begin());
}

int stages_per_worker(Schedule schedule) {
  return schedule == Schedule::kZbV || schedule == Schedule::kInterleaved ? 2 : 1;
}

int workers_for(Schedule schedule, int stages) {
  const int each = stages_per_worker(schedule);
  if (stages < each || stages % each != 0) {
    throw ConfigError(str("Pipeline: the schedule ", schedule_name(schedule), " has ",
                          amount_of(each, "stage"), " on each worker, got ",
                          amount_of(stages, "stage"), " in all"));
  }
  return stages / each;
}

namespace pipeline {
namespace {

Table table_of_schedule(const PipelineOptions& options, int stages, int workers,
                        int micro_batches) {
  const std::string_view name = schedule_name(options.schedule);
  const Table table = schedule_of(name, workers, micro_batches, std::max(1, stages / workers));
  if (table.stages() != stages) {
    throw ConfigError(str("PipelineOptions: the schedule ", name, " has ",
                          amount_of(table.stages(), "stage"), " on ", amount_of(workers, "worker"),
                          ", got ", stages));
  }
  return table;
}

Table table_of_user(const Table& table, int stages, int workers, int micro_batches) {
  check(table);
  if (table.stages() != stages || static_cast<int>(table.workers.size()) != workers ||
      table.micro_batches != micro_batches) {
    throw ConfigError(str("PipelineOptions: the table ", table.name, " has ", table.stages(),
                          " stages, ", table.workers.size(), " workers and ", table.micro_batches,
                          " micro-batches, expected ", stages, ", ", workers, " and ",
                          micro_batches));
  }
  return table;
}

}  // namespace

PipelineOptions with_numbers_of_table(PipelineOptions options) {
  if (options.table) options.micro_batches = options.table->micro_batches;
  return options;
}

Table make_table(const PipelineOptions& options, int stages, int workers, int micro_batches) {
  const OptionCheck check_option("PipelineOptions");
  check_option.at_least("micro_batches", options.micro_batches, 1);
  check_option.at_least("threads_per_worker", options.threads_per_worker, 0);
  check_option.positive("timeout", static_cast<double>(options.timeout.count()));
  if (stages < 1 || workers < 1) {
    throw ConfigError(
        str("pipeline: needs a stage and a device at least, got ", stages, " and ", workers));
  }
  Table table = options.table ? table_of_user(*options.table, stages, workers, micro_batches)
                              : table_of_schedule(options, stages, workers, micro_batches);
  for (const int stage : options.whole_backward) {
    if (stage < 0 || stage >= stages) {
      throw ConfigError(str("PipelineOptions: whole_backward names stage ", stage, " of ", stages));
    }
    table = with_whole_backward(table, stage);
  }
  if (has_reductions(table) && !options.reduce) {
    throw ConfigError(str("PipelineOptions: the table ", table.name,
                          " has reductions; give options.reduce a function that does them"));
  }
  if (options.reduce && !has_reductions(table)) {
    if (has_messages(table)) {
      throw ConfigError(str("PipelineOptions: the table ", table.name,
                            " has messages but no reductions, which come before messages; write "
                            "REDUCE_GRAD into it, or remove the messages"));
    }
    table = with_reductions(table);
  }
  if (!has_messages(table)) table = with_messages(table);
  check(table);
  return table;
}

}  // namespace pipeline
}  // namespace lockstep
