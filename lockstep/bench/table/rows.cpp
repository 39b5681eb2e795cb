#include <lockstep/bench/table/rows.h>

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/core/measuring/quantile.h>

namespace lockstep::bench {
namespace {

using RunJson = nlohmann::json;

std::vector<double> numbers_of(const std::vector<RunJson>& objects,
                               const RunJson::json_pointer& path) {
  std::vector<double> values;
  for (const RunJson& object : objects) {
    if (object.contains(path) && !object.at(path).is_null()) {
      values.push_back(object.at(path).get<double>());
    }
  }
  return values;
}

// The median over the objects that have the member.
std::optional<double> median_of(const std::vector<RunJson>& objects, const char* path) {
  const std::vector<double> values = numbers_of(objects, RunJson::json_pointer(path));
  if (values.empty()) return std::nullopt;
  return median(values);
}

// The median over a member of each object.
double needed_median_of(const std::vector<RunJson>& objects, const char* path) {
  std::vector<double> values;
  for (const RunJson& object : objects) {
    values.push_back(object.at(RunJson::json_pointer(path)).get<double>());
  }
  return median(values);
}

// The epochs of each run after the first, which warms up; the first one if it is the only one.
std::vector<RunJson> later_epochs(const std::vector<RunJson>& runs) {
  std::vector<RunJson> later;
  for (const RunJson& run : runs) {
    const RunJson& epochs = run.at("epochs");
    if (epochs.empty()) throw DataError("bench table: the run has no epochs");
    for (std::size_t i = epochs.size() > 1 ? 1 : 0; i < epochs.size(); ++i) {
      later.push_back(epochs.at(i));
    }
  }
  return later;
}

void read_what_was_run(const RunJson& run, BenchTableRow& row) {
  row.recipe = run.at("recipe").get<std::string>();
  row.device = run.at("device").get<std::string>();
  row.precision = run.value("precision", "");
  row.backend = run.at("backend").get<std::string>();
  if (row.way.peer) {
    row.peer = str("torch ", run.at("torch").get<std::string>(), ", ", row.way.peer->loader);
    if (row.way.peer->workers > 0)
      row.peer += str(" with ", amount_of(row.way.peer->workers, "worker"));
  }
  row.ranks = run.at("world_size").get<int>() * run.value("devices", 1);
  row.threads_per_rank = run.at("threads_per_rank").get<int>() / run.value("devices", 1);
  row.global_batch = run.at("global_batch").get<std::int64_t>();
  row.batch_per_rank = row.global_batch / row.ranks;
  row.accumulate_grad_batches = run.value("accumulate_grad_batches", row.accumulate_grad_batches);
  row.iterations_per_epoch = run.at("steps_per_epoch").get<std::int64_t>();
}

void read_set_up(const std::vector<RunJson>& runs, BenchTableRow& row) {
  row.setup_group_s = needed_median_of(runs, "/setup_seconds/group");
  row.setup_loader_s = needed_median_of(runs, "/setup_seconds/loader");
  row.setup_model_s = needed_median_of(runs, "/setup_seconds/model");
  row.sync_parameters_s = needed_median_of(runs, "/setup_seconds/synchronization");
  row.first_epoch_s = needed_median_of(runs, "/epochs/0/seconds");
  row.seconds_to_first_step = needed_median_of(runs, "/seconds_to_first_step");
  row.peak_rss_bytes = static_cast<std::int64_t>(needed_median_of(runs, "/peak_rss_bytes"));
}

void read_epochs(const std::vector<RunJson>& epochs, int devices, BenchTableRow& row) {
  const std::vector<double> seconds = numbers_of(epochs, RunJson::json_pointer("/seconds"));
  row.epoch_s = median(seconds);
  row.least_epoch_s = std::ranges::min(seconds);
  row.most_epoch_s = std::ranges::max(seconds);
  row.images_per_second = needed_median_of(epochs, "/images_per_second");
  row.data_wait_s = needed_median_of(epochs, "/phases/data");
  row.stage_waits_s = median_of(epochs, "/phases/stage_waits").value_or(0);
  row.exposed_communication_s = median_of(epochs, "/phases/communication");
  if (row.exposed_communication_s) {
    row.exposed_communication_s = std::max(*row.exposed_communication_s - row.stage_waits_s, 0.0);
  }
  std::vector<double> busy;
  for (const RunJson& epoch : epochs) {
    busy.push_back(epoch.at("processor_seconds").get<double>() /
                   (devices * epoch.at("seconds").get<double>()));
  }
  row.cpu_utilisation = median(busy);
  row.gpu_utilisation = median_of(epochs, "/gpu/utilisation");
  row.gpu_memory_utilisation = median_of(epochs, "/gpu/memory_utilisation");
  row.gpu_power_w = median_of(epochs, "/gpu/power_watts");
}

bool is_same_program(const TableWay& one, const TableWay& other) {
  if (one.peer.has_value() != other.peer.has_value()) return false;
  return !one.peer ||
         (one.peer->loader == other.peer->loader && one.peer->workers == other.peer->workers);
}

// Whether `alone` is one rank with the workload of each rank of `row`.
bool is_rank_of(const BenchTableRow& alone, const BenchTableRow& row) {
  return alone.error.empty() && alone.way.ranks == 1 && is_same_program(alone.way, row.way) &&
         alone.way.batch_per_rank == row.way.batch_per_rank && alone.way.loader == row.way.loader &&
         alone.way.fused_kernels == row.way.fused_kernels && alone.images_per_second > 0;
}

}  // namespace

BenchTableRow table_row_of(const TableWay& way, const std::vector<std::string>& runs,
                           std::int64_t processors) {
  BenchTableRow row;
  row.way = way;
  row.rounds = static_cast<int>(runs.size());
  try {
    std::vector<RunJson> parsed;
    for (const std::string& run : runs) parsed.push_back(RunJson::parse(run));
    read_what_was_run(parsed.at(0), row);
    read_set_up(parsed, row);
    read_epochs(later_epochs(parsed), parsed.at(0).value("devices", 1), row);
  } catch (const RunJson::exception& error) {
    throw DataError(str("bench table: this is not the record of a run: ", json_problem(error)));
  }
  row.oversubscribed = row.device == "cpu" && row.ranks * row.threads_per_rank > processors;
  return row;
}

void set_efficiencies(std::vector<BenchTableRow>& rows) {
  for (BenchTableRow& row : rows) {
    if (!row.error.empty()) continue;
    const auto alone = std::ranges::find_if(
        rows, [&](const BenchTableRow& other) { return is_rank_of(other, row); });
    if (alone == rows.end()) continue;
    row.efficiency =
        row.images_per_second / (static_cast<double>(row.way.ranks) * alone->images_per_second);
  }
}

}  // namespace lockstep::bench
