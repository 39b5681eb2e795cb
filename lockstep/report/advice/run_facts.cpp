#include <lockstep/report/advice/run_facts.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/report/advice/trace_facts.h>
#include <lockstep/report/run_place.h>

namespace lockstep {
namespace {

using FileJson = nlohmann::json;

constexpr const char* kNotOurs = "is not what Lockstep writes";

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

double number_at(const FileJson& json, const char* path, double absent = 0) {
  const FileJson::json_pointer pointer(path);
  if (!json.contains(pointer) || json.at(pointer).is_null()) return absent;
  return json.at(pointer).get<double>();
}

RunFacts facts_of_record(const std::string& text) {
  const FileJson run = FileJson::parse(text);
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

// What `read` makes of the text of `file`; what it throws names the file.
template <class Read>
auto facts_in(const std::filesystem::path& file, const Read& read) {
  const std::string text = content_of(file);
  try {
    return read(text);
  } catch (const FileJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const std::logic_error& error) {  // of a number
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const DataError& error) {
    throw DataError(str(file.string(), ": ", error.what()));
  }
}

}  // namespace

RunFacts read_run_facts(const std::filesystem::path& run) {
  const RunPlace place = place_of_run(run);
  std::error_code error;
  if (!std::filesystem::exists(place.record, error)) {
    throw DataError(str(run.string(),
                        " has no run.json: give the folder that `lockstep train --out` "
                        "has written, or a record of `lockstep train --json`"));
  }
  RunFacts facts = facts_in(place.record, facts_of_record);
  const std::filesystem::path trace = place.folder / "trace.json";
  if (place.folder.empty() || !std::filesystem::exists(trace, error)) return facts;
  facts.trace =
      facts_in(trace, [&](const std::string& text) { return facts_of_trace(text, facts.ranks); });
  if (facts.trace->steps == 0) facts.trace.reset();
  return facts;
}

}  // namespace lockstep
