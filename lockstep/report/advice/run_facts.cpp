#include <lockstep/report/advice/run_facts.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/report/waited_rank.h>

namespace lockstep {
namespace {

using FileJson = nlohmann::json;

FileJson read_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  try {
    return FileJson::parse(stream);
  } catch (const FileJson::exception& error) {
    throw DataError(str(file.string(), " is not JSON: ", error.what()));
  }
}

double number_at(const FileJson& json, const char* path, double absent = 0) {
  const FileJson::json_pointer pointer(path);
  if (!json.contains(pointer) || json.at(pointer).is_null()) return absent;
  return json.at(pointer).get<double>();
}

RunFacts facts_of(const FileJson& run) {
  const FileJson& epochs = run.at("epochs");
  if (epochs.empty()) throw DataError("the run has no whole epoch yet");
  RunFacts facts;
  facts.recipe = run.at("recipe").get<std::string>();
  facts.strategy = run.at("strategy").get<std::string>();
  facts.loader = run.at("loader").get<std::string>();
  facts.device = run.at("device").get<std::string>();
  facts.backend = run.at("backend").get<std::string>();
  facts.ranks = run.at("world_size").get<int>();
  facts.local_ranks = static_cast<int>(number_at(run, "/local_ranks", facts.ranks));
  facts.threads_per_rank = run.at("threads_per_rank").get<int>();
  facts.processors = static_cast<std::int64_t>(number_at(run, "/usable_processors"));
  facts.batch_per_rank = run.at("global_batch").get<std::int64_t>() / std::max(facts.ranks, 1);
  double seconds = 0, data = 0, compute = 0, communication = 0, gpu = 0;
  std::int64_t steps = 0, with_gpu = 0;
  for (std::size_t i = epochs.size() > 1 ? 1 : 0; i < epochs.size(); ++i) {
    const FileJson& epoch = epochs.at(i);
    seconds += epoch.at("seconds").get<double>();
    data += number_at(epoch, "/phases/data");
    compute += number_at(epoch, "/phases/forward") + number_at(epoch, "/phases/backward") +
               number_at(epoch, "/phases/optimizer");
    communication += number_at(epoch, "/phases/communication");
    steps += epoch.at("steps").get<std::int64_t>();
    const double utilisation = number_at(epoch, "/gpu/utilisation", -1);
    if (utilisation < 0) continue;
    gpu += utilisation;
    ++with_gpu;
  }
  if (seconds <= 0 || steps <= 0) throw DataError("the run has no whole epoch yet");
  facts.step_seconds = seconds / static_cast<double>(steps);
  facts.data = data / seconds;
  facts.compute = compute / seconds;
  facts.communication = communication / seconds;
  if (with_gpu > 0) facts.gpu_utilisation = gpu / static_cast<double>(with_gpu);
  return facts;
}

// When each rank was in a step, in microseconds.
using StepsOfRanks = std::map<int, std::vector<std::pair<double, double>>>;

StepsOfRanks steps_of_ranks(const FileJson& trace) {
  StepsOfRanks steps;
  for (const FileJson& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") != "step") continue;
    const double begin = event.at("ts").get<double>();
    steps[event.at("pid").get<int>()].emplace_back(begin, begin + event.at("dur").get<double>());
  }
  return steps;
}

// Ranks wait for each other between steps, too: for an evaluation, or for a checkpoint that one writes.
bool is_in_step(const StepsOfRanks& steps, const FileJson& event) {
  const auto own = steps.find(event.at("pid").get<int>());
  const double begin = event.at("ts").get<double>();
  return own != steps.end() && std::ranges::any_of(own->second, [begin](const auto& step) {
    return step.first <= begin && begin < step.second;
  });
}

TraceFacts facts_of_trace(const FileJson& trace, int ranks) {
  TraceFacts facts;
  std::vector<double> transfers;
  double bytes = 0;
  const StepsOfRanks steps_of_rank = steps_of_ranks(trace);
  for (const FileJson& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::string category = event.at("cat").get<std::string>();
    const double seconds = 1e-6 * event.at("dur").get<double>();
    if (category == "step" && event.at("pid") == 0) {
      ++facts.steps;
      facts.step_seconds += seconds;
    } else if (category == "arrival") {
      if (!is_in_step(steps_of_rank, event)) continue;
      facts.arrival_seconds += seconds;
      if (const auto rank = rank_waited_for(event.at("name").get<std::string>())) ++facts.last[*rank];
    } else if (event.at("args").contains("bytes")) {
      transfers.push_back(seconds);
      bytes += std::stod(event.at("args").at("bytes").get<std::string>());
    }
  }
  if (facts.steps == 0) return facts;
  const auto steps = static_cast<double>(facts.steps);
  facts.step_seconds /= steps;
  facts.arrival_seconds /= steps * ranks;
  if (transfers.empty()) return facts;
  const auto count = static_cast<double>(transfers.size());
  facts.reductions = count / (steps * ranks);
  facts.reduction_bytes = bytes / count;
  const auto middle = transfers.begin() + static_cast<std::ptrdiff_t>(transfers.size() / 2);
  std::nth_element(transfers.begin(), middle, transfers.end());
  facts.reduction_seconds = *middle;
  return facts;
}

// What `read` makes of `file`; what it throws names the file.
template <class Read>
auto facts_in(const std::filesystem::path& file, const Read& read) {
  const FileJson json = read_json(file);
  try {
    return read(json);
  } catch (const FileJson::exception& error) {
    throw DataError(str(file.string(), " is not what Lockstep writes: ", error.what()));
  } catch (const std::logic_error& error) {  // of a number
    throw DataError(str(file.string(), " is not what Lockstep writes: ", error.what()));
  } catch (const DataError& error) {
    throw DataError(str(file.string(), ": ", error.what()));
  }
}

}  // namespace

RunFacts read_run_facts(const std::filesystem::path& folder) {
  const std::filesystem::path record = folder / "run.json";
  std::error_code error;
  if (!std::filesystem::exists(record, error)) {
    throw DataError(str(folder.string(), " has no run.json: give the folder that `lockstep train --out` "
                        "has written"));
  }
  RunFacts facts = facts_in(record, facts_of);
  const std::filesystem::path trace = folder / "trace.json";
  if (!std::filesystem::exists(trace, error)) return facts;
  facts.trace = facts_in(trace, [&](const FileJson& json) { return facts_of_trace(json, facts.ranks); });
  if (facts.trace->steps == 0) facts.trace.reset();
  return facts;
}

}  // namespace lockstep
