#include <lockstep/report/advice/run_facts.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/report/advice/trace_facts.h>
#include <lockstep/report/run_place.h>

namespace lockstep::report {
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

const double kUnknown = std::nan("");  // makes a sum unknown, too

std::string epochs_text(const FileJson& epochs, std::size_t first) {
  const auto name = [&](const FileJson& epoch, std::size_t i) {
    return epoch.value("epoch", static_cast<std::int64_t>(i + 1));
  };
  const std::int64_t from = name(epochs.at(first), first);
  const std::int64_t to = name(epochs.back(), epochs.size() - 1);
  if (from == to) return str("epoch ", from, first == 0 ? " after its first batch" : "");
  return str("epochs ", from, " to ", to);
}

// Sums over the epochs of a record, starting with a given one.
struct EpochSums {
  double seconds = 0, steps = 0, data = 0, first_batch = 0, compute = 0, communication = 0;
  double stage_waits = 0, processor = 0, processor_wait = 0, busy = 0;
  double gpu = 0, with_gpu = 0;  // seconds in which GPUs computed, of those in which they were seen
  double least_first_batch = 1;  // share of an epoch

  void add(const FileJson& epoch) {
    const double took = epoch.at("seconds").get<double>();
    const double first = number_at(epoch, "/first_batch_seconds");
    seconds += took;
    steps += epoch.at("steps").get<double>();
    data += number_at(epoch, "/phases/data") - first;
    first_batch += first;
    if (took > 0) least_first_batch = std::min(least_first_batch, first / took);
    compute += number_at(epoch, "/phases/forward") + number_at(epoch, "/phases/backward") +
               number_at(epoch, "/phases/optimizer");
    communication += number_at(epoch, "/phases/communication");
    stage_waits += number_at(epoch, "/phases/stage_waits");
    processor += number_at(epoch, "/processor_seconds");
    processor_wait += number_at(epoch, "/processor_wait_seconds", kUnknown);
    busy += took * number_at(epoch, "/busy_processors", kUnknown);
    const double utilisation = number_at(epoch, "/gpu/utilisation", -1);
    if (utilisation < 0) return;
    gpu += took * utilisation;
    with_gpu += took;
  }
};

// The processor time that is neither idle nor the run's own. `sums` are over complete epochs.
std::optional<double> used_by_others(const EpochSums& sums, const RunFacts& facts) {
  if (std::isnan(sums.busy) || facts.processors <= 0 || sums.seconds <= 0) return std::nullopt;
  const double own = sums.processor * facts.local_ranks / static_cast<double>(facts.processors);
  return std::clamp((sums.busy - own) / sums.seconds, 0.0, 1.0);
}

// The loader starts during the wait for the first batch: in a run of one epoch, neither the step
// nor any share of it contains that wait, in which GPUs and the training thread had nothing to do.
void leave_out_first_batch(EpochSums& sums) {
  const double wait = std::exchange(sums.first_batch, 0);
  sums.seconds -= wait;
  if (sums.with_gpu > 0) sums.with_gpu -= wait;
}

void add_epochs(const FileJson& epochs, RunFacts& facts) {
  EpochSums sums;
  const std::size_t first = epochs.size() > 1 ? 1 : 0;
  for (std::size_t i = first; i < epochs.size(); ++i) sums.add(epochs.at(i));
  facts.other_programs = used_by_others(sums, facts);
  if (first == 0) leave_out_first_batch(sums);
  if (sums.seconds <= 0 || sums.steps <= 0) throw DataError("the run has no whole epoch");
  facts.epochs = epochs_text(epochs, first);
  facts.step_seconds = sums.seconds / sums.steps;
  facts.data = std::max(sums.data / sums.seconds, 0.0);
  facts.first_batch = sums.first_batch / sums.seconds;
  facts.least_first_batch = first == 0 ? 0 : sums.least_first_batch;
  facts.compute = sums.compute / sums.seconds;
  facts.communication = sums.communication / sums.seconds;
  facts.stage_waits = std::min(sums.stage_waits / sums.seconds, facts.communication);
  if (!std::isnan(sums.processor_wait)) facts.processor_wait = sums.processor_wait / sums.seconds;
  if (sums.with_gpu > 0) facts.gpu_utilisation = std::min(sums.gpu / sums.with_gpu, 1.0);
}

// The pipelines that share a batch; 0 for other strategies.
int pipelines_of(const FileJson& run, int ranks) {
  const std::string strategy = run.at("strategy").get<std::string>();
  if (strategy == "pipeline") return 1;
  const int workers = static_cast<int>(number_at(run, "/workers"));
  return strategy == "hybrid" ? std::max(ranks / std::max(workers, 1), 1) : 0;
}

// See RunFacts::batch_per_rank.
std::int64_t images_of_step(const FileJson& run, const RunFacts& facts) {
  const auto batches = static_cast<std::int64_t>(number_at(run, "/accumulate_grad_batches", 1));
  const int shares = facts.pipelines > 0 ? facts.pipelines : std::max(facts.ranks, 1);
  return run.at("global_batch").get<std::int64_t>() * batches / shares;
}

// Records of older versions have no list of slow precisions.
bool is_fast_in_bfloat16(const FileJson& run, const std::string& device) {
  if (device != "cpu") return true;
  if (!run.contains("slow_precisions")) return false;
  const auto slow = run.at("slow_precisions").get<std::vector<std::string>>();
  return std::ranges::find(slow, "bf16") == slow.end();
}

RunFacts facts_of_record(const std::string& text) {
  const FileJson run = FileJson::parse(text);
  const FileJson& epochs = run.at("epochs");
  if (epochs.empty()) throw DataError("the run has no whole epoch");
  RunFacts facts;
  facts.recipe = run.at("recipe").get<std::string>();
  facts.strategy = run.at("strategy").get<std::string>();
  facts.loader = run.at("loader").get<std::string>();
  facts.device = run.at("device").get<std::string>();
  facts.precision = run.value("precision", "");
  facts.has_bfloat16 = is_fast_in_bfloat16(run, facts.device);
  facts.backend = run.at("backend").get<std::string>();
  facts.ranks = run.at("world_size").get<int>();
  facts.local_ranks = static_cast<int>(number_at(run, "/local_ranks", facts.ranks));
  facts.threads_per_rank = run.at("threads_per_rank").get<int>();
  facts.processors = static_cast<std::int64_t>(number_at(run, "/usable_processors"));
  facts.pipelines = pipelines_of(run, facts.ranks);
  facts.batch_per_rank = images_of_step(run, facts);
  add_epochs(epochs, facts);
  return facts;
}

// The result of `read` for the text of `file`; errors name the file.
template <class Read>
auto facts_in(const std::filesystem::path& file, const Read& read) {
  const std::string text = content_of(file);
  try {
    return read(text);
  } catch (const FileJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const std::logic_error& error) {  // from a number conversion
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const DataError& error) {
    throw DataError(str(file.string(), ": ", error.what()));
  }
}

}  // namespace

RunFacts read_run_facts(const std::filesystem::path& run) {
  const RunPlace place = place_of_run(run);
  std::error_code error;
  if (!std::filesystem::exists(place.record, error)) throw missing_record(run);
  RunFacts facts = facts_in(place.record, facts_of_record);
  const std::filesystem::path trace = place.folder / "trace.json";
  if (place.folder.empty() || !std::filesystem::exists(trace, error)) return facts;
  facts.trace =
      facts_in(trace, [&](const std::string& text) { return facts_of_trace(text, facts.ranks); });
  if (facts.trace->steps == 0) facts.trace.reset();
  return facts;
}

}  // namespace lockstep::report
