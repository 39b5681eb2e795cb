#include <lockstep/parallel/pipeline/distributed_pipeline.h>

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/base/existing_device.h>
#include <lockstep/parallel/base/trace_of_ranks.h>
#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/micro_batches.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/parallel/pipeline/pipeline_trace.h>
#include <lockstep/parallel/pipeline/rank_channel.h>
#include <lockstep/parallel/pipeline/schedule/executor.h>
#include <lockstep/parallel/pipeline/stage_worker.h>
#include <lockstep/parallel/pipeline/step_tables.h>
#include <lockstep/parallel/pipeline/step_times.h>
#include <lockstep/parallel/pipeline/tied_copies.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep {
namespace {

using pipeline::Table;

// The device with an explicit index. A rank that cannot use it aborts the group, because the others
// wait for it.
torch::Device device_with_index(torch::Device device, ProcessGroup& group) {
  try {
    return parallel::existing_device(device, "");
  } catch (const std::exception& error) {
    const ConfigError refusal(lockstep::str("DistributedPipeline: rank ", group.rank(),
                                            " cannot use the device ", device, ": ",
                                            first_line(error)));
    group.abort(refusal.what());
    throw refusal;
  }
}

// The letters with which a rank describes its stages to the others.
constexpr char kSplitStage = 's';
constexpr char kWholeStage = 'w';  // a stage whose backward is never split

constexpr char kEndOfStages = '.';  // so that a rank without stages also has something to send

// For each rank, a string with one letter per stage.
std::vector<std::string> stages_of_ranks(const std::vector<pipeline::StageModule>& own,
                                         ProcessGroup& group) {
  std::string letters;
  for (const pipeline::StageModule& stage : own) {
    letters += stage.has_whole_backward() ? kWholeStage : kSplitStage;
  }
  std::vector<std::string> ranks = group.all_gather_object(letters + kEndOfStages);
  for (std::string& each : ranks) each.pop_back();
  return ranks;
}

Table table_for_counts(const PipelineOptions& options, const std::vector<int>& counts) {
  const int stages = std::accumulate(counts.begin(), counts.end(), 0);
  Table table =
      pipeline::make_table(options, stages, static_cast<int>(counts.size()), options.micro_batches);
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
    const auto wanted = std::count(table.worker_of.begin(), table.worker_of.end(), rank);
    const int got = counts[static_cast<std::size_t>(rank)];
    if (wanted == got) continue;
    throw ConfigError(str("DistributedPipeline: rank ", rank, " has ", got, " stages, table ",
                          table.name, " expects ", wanted));
  }
  return table;
}

// For each stage of `table`, whether its rank declared that the backward is never split.
std::vector<bool> whole_stages(const Table& table, const std::vector<std::string>& ranks) {
  std::vector<std::size_t> seen(ranks.size());
  std::vector<bool> is_whole;
  for (const int worker : table.worker_of) {
    const auto rank = static_cast<std::size_t>(worker);
    is_whole.push_back(ranks[rank][seen[rank]++] == kWholeStage);
  }
  return is_whole;
}

struct Agreement {
  PipelineOptions options;
  Table table;
};

// The table for the stages of all ranks, and `options` that also produce it for other numbers of
// micro-batches. A rank knows only its own stages, but all ranks need the same table.
Agreement agreement_for(const PipelineOptions& options, const std::vector<std::string>& ranks) {
  std::vector<int> counts;
  for (const std::string& letters : ranks) counts.push_back(static_cast<int>(letters.size()));
  Agreement agreement{options, table_for_counts(options, counts)};
  agreement.options = pipeline::with_whole_stages(options, whole_stages(agreement.table, ranks));
  agreement.table = table_for_counts(agreement.options, counts);
  return agreement;
}

// Returns the table if all ranks have the same one.
Agreement agree_on_table(const PipelineOptions& options,
                         const std::vector<pipeline::StageModule>& own, ProcessGroup& group) {
  const std::vector<std::string> ranks = stages_of_ranks(own, group);
  Agreement agreement;
  std::string said;
  try {
    agreement = agreement_for(options, ranks);
    said = str(options.loss_reduction == LossReduction::kSum ? "sum" : "mean", '\n',
               csv(agreement.table));
  } catch (const ConfigError& error) {  // the other ranks must learn of it
    said = str('!', error.what());
  }
  const auto all = group.all_gather_object(said);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = all[static_cast<std::size_t>(rank)];
    if (text.front() == '!') throw ConfigError(str("rank ", rank, ": ", text.substr(1)));
    if (text == all[0]) continue;
    throw ConfigError(str("DistributedPipeline: ranks 0 and ", rank,
                          " have different tables or loss reductions; give all ranks the same "
                          "options"));
  }
  return agreement;
}

// What a rank tells the others about its copies of tied weights: for each, a line with its name and
// one with its kind. Throws ConfigError if one is not a parameter of this rank's stages.
std::string described_copies(const NamedTensors& tied, const Tensors& parameters) {
  std::string lines;
  std::set<std::string> names;
  std::set<const torch::TensorImpl*> tensors;
  for (const auto& [name, tensor] : tied) {
    if (name.empty() || name.find('\n') != std::string::npos) {
      throw ConfigError("PipelineOptions::tied: a name must be one line of text");
    }
    const bool is_own = tensor.defined() && std::any_of(parameters.begin(), parameters.end(),
                                                        [&tensor = tensor](const auto& each) {
                                                          return each.is_same(tensor);
                                                        });
    if (!is_own) {
      throw ConfigError(lockstep::str("PipelineOptions::tied: '", name,
                                      "' is not a parameter of this rank's stages"));
    }
    if (!names.insert(name).second || !tensors.insert(tensor.unsafeGetTensorImpl()).second) {
      throw ConfigError(lockstep::str("PipelineOptions::tied: '", name,
                                      "' is listed twice; list each weight once"));
    }
    lines += lockstep::str(name, '\n', tensor.scalar_type(), ' ', tensor.sizes(), " with strides ",
                           tensor.strides(), '\n');
  }
  return lines;
}

// A weight that several ranks have.
struct TiedWeight {
  std::string kind;
  std::vector<int> ranks;
};

// The weights by name, from described_copies() of all ranks. Throws ConfigError for one that only
// one rank has, and for copies of different kinds.
std::map<std::string, TiedWeight> tied_weights(const std::vector<std::string>& described) {
  std::map<std::string, TiedWeight> weights;
  for (int rank = 0; rank < static_cast<int>(described.size()); ++rank) {
    std::istringstream lines(described[static_cast<std::size_t>(rank)]);
    for (std::string name, kind; std::getline(lines, name) && std::getline(lines, kind);) {
      TiedWeight& weight = weights[name];
      if (weight.ranks.empty()) weight.kind = kind;
      if (weight.kind != kind) {
        throw ConfigError(str("PipelineOptions::tied: '", name, "' is ", weight.kind, " on rank ",
                              weight.ranks.front(), " and ", kind, " on rank ", rank));
      }
      weight.ranks.push_back(rank);
    }
  }
  for (const auto& [name, weight] : weights) {
    if (weight.ranks.size() > 1 || described.size() == 1) continue;
    throw ConfigError(str("PipelineOptions::tied: only rank ", weight.ranks.front(), " lists '",
                          name, "'; list it on every rank that has a copy, under one name"));
  }
  return weights;
}

// Collective. The copies of all ranks; the tensors of weights that this rank does not have are
// undefined.
pipeline::CopiesByRanks agree_on_copies(const PipelineOptions& options, const Tensors& parameters,
                                        ProcessGroup& group) {
  constexpr char kRefused = '!';
  std::string said;
  try {
    said = ' ' + described_copies(options.tied, parameters);
    if (!options.tied.empty() && options.reduce) {
      throw ConfigError(
          "PipelineOptions: the gradients of tied weights are complete only when the step has "
          "ended; do not set options.reduce, and reduce the gradients after step()");
    }
  } catch (const ConfigError& error) {  // the other ranks must learn of it
    said = kRefused + std::string(error.what());
  }
  std::vector<std::string> all = group.all_gather_object(said);
  for (int rank = 0; rank < group.size(); ++rank) {
    std::string& text = all[static_cast<std::size_t>(rank)];
    if (text.front() == kRefused) throw ConfigError(str("rank ", rank, ": ", text.substr(1)));
    text.erase(0, 1);
  }
  const std::map<std::string, torch::Tensor> own(options.tied.begin(), options.tied.end());
  pipeline::CopiesByRanks copies;
  for (const auto& [name, weight] : tied_weights(all)) {
    if (weight.ranks.size() == 1) continue;  // in a group of one, whose stages share the tensor
    const auto found = own.find(name);
    copies[weight.ranks].emplace_back(name, found == own.end() ? torch::Tensor() : found->second);
  }
  return copies;
}

}  // namespace

class DistributedPipeline::Impl {
 public:
  Impl(std::vector<pipeline::StageModule> modules, ProcessGroup group, torch::Device device,
       const PipelineOptions& options)
      : group_(std::move(group)),
        device_(device_with_index(device, group_)),
        agreement_(agree_on_table(pipeline::with_numbers_of_table(options), modules, group_)),
        tables_(options_, table_.stages(), group_.size()),
        channel_(group_, device_),
        clock_(std::make_shared<pipeline::WorkerClock>(device_)) {
    try_locally([&] { take_over(std::move(modules)); });
    couple_copies();
  }

  torch::Tensor step(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y,
                     std::optional<std::int64_t> samples) {
    pipeline::StepBatch batch;
    try_locally([&] {
      pipeline::refuse_to_reduce_ties(*tied_, options_);  // a shared weight may have been unfrozen
      batch = cut(x, true, samples);
      batch.loss = loss;
      if (!has_last()) return;
      const auto sizes = sizes_of(samples_of(y, samples), batch.plan.micro_batches);
      batch.targets = pipeline::split_batch(y, sizes, "y");
      batch.weights = pipeline::loss_weights(sizes, options_.loss_reduction);
    });
    if (copies_) copies_->begin_step();
    const auto losses = run(tables_.training(batch.plan.micro_batches), batch);
    try_locally([&] {
      if (copies_) copies_->end_step();
    });
    return has_last() ? pipeline::sum_of_losses(losses) : torch::Tensor();
  }

  Tensors forward(const Tensors& x, std::optional<std::int64_t> samples) {
    pipeline::StepBatch batch;
    try_locally([&] { batch = cut(x, false, samples); });
    const auto outputs = run(tables_.evaluation(batch.plan.micro_batches), batch);
    Tensors joined;
    try_locally([&] {
      if (has_last()) joined = pipeline::joined_outputs(outputs);
    });
    return joined;
  }

  // Also the groups of copies, in which another rank may wait at the end of a step.
  void abort(const std::string& reason) {
    channel_.abort(reason);
    if (copies_) copies_->abort(reason);
  }

  const std::vector<std::shared_ptr<pipeline::Stage>>& stages() const { return stages_; }
  const Table& table() const { return table_; }
  const pipeline::Timeline& timeline() const {
    static const pipeline::Timeline none;
    return times_ ? times_->timeline() : none;
  }
  std::shared_ptr<const pipeline::StepTimes> step_times() const { return times_; }
  void write_trace(const std::filesystem::path& path) {
    const auto began =
        times_ ? times_->began(static_cast<std::size_t>(group_.rank())) : Clock::time_point();
    parallel::write_trace_of_ranks(path, pipeline::trace_spans(timeline(), began), group_);
  }
  ActivationBytes peak_activation_bytes() const {
    if (!memory_) {
      throw ConfigError(
          "DistributedPipeline: peak_activation_bytes() needs PipelineOptions::measure_memory");
    }
    const ActivationBytes all = memory_->peaks();
    ActivationBytes own;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s]) own.stages.push_back(all.stages[s]);
    }
    own.workers = {all.workers[static_cast<std::size_t>(group_.rank())]};
    return own;
  }

 private:
  bool has_first() const { return table_.worker_of.front() == group_.rank(); }
  bool has_last() const { return table_.worker_of.back() == group_.rank(); }

  // Aborts the pipeline on all ranks if `function` throws, because the others must not wait for
  // this rank.
  template <class Function>
  void try_locally(const Function& function) {
    try {
      function();
    } catch (const std::exception& error) {
      abort(first_line(error));
      throw;
    }
  }

  // Makes this rank's stages from its modules.
  void take_over(std::vector<pipeline::StageModule> modules) {
    std::vector<Tensors> parameters(table_.worker_of.size());
    std::vector<std::size_t> places;
    for (std::size_t s = 0; s < table_.worker_of.size(); ++s) {
      if (table_.worker_of[s] == group_.rank()) places.push_back(s);
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      pipeline::move_to(modules[i], device_);
      parameters[places[i]] = modules[i].module().parameters();
    }
    tied_ = std::make_unique<pipeline::TiedParameters>(parameters);
    pipeline::refuse_to_reduce_ties(*tied_, options_);
    if (options_.measure_memory) {
      memory_ = std::make_unique<pipeline::ActivationMemory>(table_.worker_of);
    }
    stages_.resize(table_.worker_of.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      stages_[places[i]] =
          std::make_shared<pipeline::Stage>(static_cast<int>(places[i]), std::move(modules[i]),
                                            device_, options_.recompute, tied_.get());
      if (memory_) stages_[places[i]]->count_memory(*memory_, /*received=*/true);
    }
    worker_ = std::make_unique<pipeline::StageWorker>(group_.rank(), device_, stages_, channel_,
                                                      options_.reduce);
  }

  // Collective.
  void couple_copies() {
    Tensors parameters;
    for (const auto& stage : stages_) {
      if (!stage) continue;
      for (const torch::Tensor& each : stage->module().parameters()) parameters.push_back(each);
    }
    const pipeline::CopiesByRanks copies = agree_on_copies(options_, parameters, group_);
    if (copies.empty()) return;
    copies_.emplace("DistributedPipeline", copies, group_);
    try_locally([&] { copies_->broadcast_values(); });
  }

  // All ranks must get the same number, so it must not depend on a batch that only some of them
  // have.
  int micro_batches_for(std::optional<std::int64_t> samples) const {
    if (!samples || *samples >= table_.micro_batches || options_.table) return table_.micro_batches;
    if (*samples < 1) throw ConfigError("DistributedPipeline: the batch has no samples");
    return static_cast<int>(*samples);
  }

  // Checks that `samples`, given on all ranks, is the size of the batch, which only the first and
  // the last rank have.
  static void require_samples(const torch::Tensor& tensor, std::optional<std::int64_t> samples,
                              const char* name) {
    if (!samples || tensor.size(0) == *samples) return;
    throw ConfigError(lockstep::str("DistributedPipeline: ", name, " has shape ", tensor.sizes(),
                                    ", expected ", *samples, " samples along dimension 0"));
  }

  // If the criterion needs no `y`, only `samples` gives the size.
  static std::int64_t samples_of(const torch::Tensor& y, std::optional<std::int64_t> samples) {
    if (!y.defined() && samples) return *samples;
    if (!y.defined() || y.dim() < 1) {
      throw ConfigError(
          "DistributedPipeline: the last rank needs y, or the number of samples if the criterion "
          "needs no y");
    }
    require_samples(y, samples, "y");
    return y.size(0);
  }

  static std::vector<std::int64_t> sizes_of(std::int64_t samples, int micro_batches) {
    if (samples < micro_batches) {
      throw ConfigError(str("DistributedPipeline: a batch of ", samples,
                            " samples cannot be cut into ", micro_batches,
                            " micro-batches; pass the number of samples to step() on all ranks, "
                            "which then makes fewer"));
    }
    return pipeline::part_sizes(samples, micro_batches);
  }

  pipeline::StepBatch cut(const Tensors& x, bool training,
                          std::optional<std::int64_t> samples) const {
    pipeline::refuse_pipelines_inside_stages();
    pipeline::StepBatch batch;
    batch.plan.training = training;
    batch.plan.seed = pipeline::draw_step_seed();
    batch.plan.micro_batches = micro_batches_for(samples);
    if (!has_first()) return batch;
    if (x.empty() || !x[0].defined() || x[0].dim() < 1) {
      throw ConfigError("DistributedPipeline: the first rank needs x");
    }
    require_samples(x[0], samples, "x");
    const auto sizes = sizes_of(x[0].size(0), batch.plan.micro_batches);
    batch.inputs = pipeline::split_inputs(x, sizes);
    return batch;
  }

  // Returns the results of the last stage on its rank, and empty lists elsewhere.
  std::vector<Tensors> run(const Table& table, const pipeline::StepBatch& batch) {
    std::vector<Tensors> results;
    try_locally([&] { results = run_locally(table, batch); });
    return results;
  }

  std::vector<Tensors> run_locally(const Table& table, const pipeline::StepBatch& batch) {
    const c10::DeviceGuard guard(device_);
    const pipeline::CastsPerMicroBatch no_shared_casts;
    const auto rank = static_cast<std::size_t>(group_.rank());
    tied_->begin(batch.plan.micro_batches);
    // An evaluation does not overwrite the measurements of the last step.
    pipeline::ActivationMemory* const memory = batch.plan.training ? memory_.get() : nullptr;
    if (memory) memory->begin();
    worker_->begin(table, batch);
    const pipeline::ActivationMemory::Watch watch(memory, group_.rank());
    std::vector<pipeline::Recording> recordings(table.workers.size());
    const auto perform = [&](const pipeline::Action& action) {
      channel_.advance();
      worker_->perform(action);
      clock_->mark();
    };
    clock_->begin();
    clock_->mark();
    auto failed = pipeline::execute(table.workers[rank], perform, recordings[rank]);
    if (batch.plan.training) {
      std::vector<std::shared_ptr<pipeline::WorkerClock>> clocks(recordings.size());
      clocks[rank] = clock_;
      times_ = std::make_shared<pipeline::StepTimes>(table.workers, std::move(recordings),
                                                     std::move(clocks));
    }
    pipeline::StepFailure failure;
    if (failed) failure.keep(group_.rank(), std::move(*failed));
    try {
      failure.check(table);
    } catch (...) {
      worker_->clear();
      throw;
    }
    channel_.finish();
    return worker_->take_results();
  }

  ProcessGroup group_;
  const torch::Device device_;
  const Agreement agreement_;
  const PipelineOptions& options_ = agreement_.options;
  const Table& table_ = agreement_.table;
  pipeline::StepTables tables_;
  pipeline::RankChannel channel_;
  std::unique_ptr<pipeline::TiedParameters> tied_;        // within this rank's stages
  std::optional<pipeline::TiedCopies> copies_;            // empty if no rank lists a tied weight
  std::unique_ptr<pipeline::ActivationMemory> memory_;    // null unless memory is measured
  std::vector<std::shared_ptr<pipeline::Stage>> stages_;  // null for stages of other ranks
  std::unique_ptr<pipeline::StageWorker> worker_;
  std::shared_ptr<pipeline::WorkerClock> clock_;
  std::shared_ptr<const pipeline::StepTimes> times_;  // times of the last step; null before it
};

DistributedPipeline::DistributedPipeline(std::vector<pipeline::StageModule> stages,
                                         ProcessGroup group, torch::Device device,
                                         const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(std::move(stages), std::move(group), device, options)) {}
DistributedPipeline::~DistributedPipeline() = default;
DistributedPipeline::DistributedPipeline(DistributedPipeline&&) noexcept = default;
DistributedPipeline& DistributedPipeline::operator=(DistributedPipeline&&) noexcept = default;

torch::Tensor DistributedPipeline::step_with(const PipelineLoss& loss, const Tensors& x,
                                             const torch::Tensor& y,
                                             std::optional<std::int64_t> samples) {
  return impl_->step(loss, x, y, samples);
}

Tensors DistributedPipeline::forward(const Tensors& x, std::optional<std::int64_t> samples) {
  return impl_->forward(x, samples);
}

void DistributedPipeline::train(bool on) {
  for (const auto& stage : impl_->stages()) {
    if (stage) stage->module().train(on);
  }
}

void DistributedPipeline::abort(const std::string& reason) { impl_->abort(reason); }

Tensors DistributedPipeline::parameters() const {
  Tensors all;
  for (const auto& stage : impl_->stages()) {
    if (!stage) continue;
    for (const torch::Tensor& parameter : stage->module().parameters()) all.push_back(parameter);
  }
  return optim::distinct(all);
}

const Table& DistributedPipeline::table() const { return impl_->table(); }
const pipeline::Timeline& DistributedPipeline::timeline() const { return impl_->timeline(); }
std::shared_ptr<const pipeline::StepTimes> DistributedPipeline::step_times() const {
  return impl_->step_times();
}

void DistributedPipeline::write_trace(const std::filesystem::path& path) {
  impl_->write_trace(path);
}

std::vector<int> DistributedPipeline::peak_activations() const {
  std::vector<int> peaks;
  for (const auto& stage : impl_->stages()) {
    if (stage) peaks.push_back(stage->peak_activations());
  }
  return peaks;
}

ActivationBytes DistributedPipeline::peak_activation_bytes() const {
  return impl_->peak_activation_bytes();
}

}  // namespace lockstep
