#include <lockstep/train/strategies/rank_pipeline_strategy.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/utils.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/ddp/module_buffers.h>
#include <lockstep/parallel/device_mesh.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/parallel/pipeline/tied_copies.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/strategies/end_all.h>
#include <lockstep/train/strategies/named_exchange.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <lockstep/train/strategies/stage_optimizers.h>
#include <lockstep/train/strategies/staged_strategy.h>

namespace lockstep::train {
namespace {

const std::string kData = "data";
const std::string kPipeline = "pipeline";

// Gives all ranks the parameters and buffers of rank 0. The module is on the CPU; the group sends
// from `device`.
void broadcast_module(const torch::nn::Module& module, ProcessGroup& group, torch::Device device) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor values = tensor.detach();
    const torch::Tensor on_device = values.to(device);
    group.broadcast(on_device, 0);
    if (!on_device.is_same(values)) values.copy_(on_device);
  }
}

class RankPipelineStrategy final : public StagedStrategy {
 public:
  RankPipelineStrategy(std::string name, ProcessGroup group, int replicas,
                       const StrategyOptions& options)
      : StagedStrategy(std::move(name), options),
        mesh_(std::move(group), {{kData, replicas}, {kPipeline, workers()}}) {}

  ProcessGroup& group() override { return mesh_.all(); }
  DataShare data_share() override {
    return {.rank = mesh_.local_rank(kData), .size = replicas(), .counts = has_last_stage()};
  }

  void attach(detail::TaskBase& task, const StepSettings& settings) override {
    end_all_if_it_throws([&] { make_stages(task, settings); });
  }

  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) override {
    return end_all_if_it_throws([&] { return make_optimizer_of_stages(groups); });
  }

  torch::Tensor step(const LoadedBatch& loaded, const StepPart& part,
                     PhaseSeconds& phases) override {
    const detail::OutputBatch batch = task().output_batch(loaded);
    StageCriterion criterion(task(), settings(), part, batch.size);
    end_all_if_it_throws([&] {
      const AccumulationScope accumulation(*this, part.is_last);
      pipe_->step(criterion, batch.inputs, batch.targets, batch.size);
    });
    add_step(pipe_->step_times(), phases);
    const PhaseScope scope(phases.communication, "reduce gradients");
    return end_all_if_it_throws([&] {
      if (copies_ && part.is_last) reduce_with_copies();
      return told_to_all(criterion.mean());
    });
  }

  // Reductions give the replicas of a stage the buffers of the first one. A stage without trainable
  // parameters has no reductions, so its buffers are broadcast here.
  void begin_evaluation() override {
    end_all_if_it_throws([&] {
      for (detail::ModuleBuffers& buffers : frozen_stages_buffers_) buffers.broadcast();
    });
  }
  void evaluate(const LoadedBatch& loaded, Metrics& metrics) override {
    const detail::OutputBatch batch = task().output_batch(loaded);
    end_all_if_it_throws([&] {
      const Tensors outputs = pipe_->forward(batch.inputs, batch.size);
      if (has_last_stage()) task().evaluate(outputs.at(0), batch.targets, metrics);
    });
  }

  // A failing pipeline has already aborted its messages. Its other ranks may also wait for this one
  // in a collective of the pipeline, ranks with copies of a weight or with the same stages in a
  // reduction or the construction of its core, and all ranks in a collective of the loop. The other
  // pipelines' ranks then abort in the same way.
  void end_all(const std::string& reason) override {
    if (pipe_) pipe_->abort(reason);
    if (copies_) copies_->abort(reason);
    mesh_.group(kPipeline).abort(reason);
    mesh_.group(kData).abort(reason);
    group().abort(reason);
  }

  double synchronization_seconds() override { return synchronization_seconds_; }
  std::vector<Span> spans() override {
    std::vector<Span> all;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (!units_[i].core) continue;
      const int worker = mesh_.group(kPipeline).rank();
      for (Span& span : units_[i].core->spans(lockstep::str("worker ", worker, " unit ", i))) {
        all.push_back(std::move(span));
      }
    }
    return all;
  }
  bool module_is_current() const override { return false; }
  void gather_module() override {
    if (is_first_replica()) end_all_if_it_throws([&] { gather_stages(); });
  }

 private:
  int own_workers() const override { return 1; }

  // Stages of this rank that are reduced and stepped together: one stage, or all of them if stages
  // of the model share a parameter, because no two optimizers or cores may have it.
  struct Unit {
    std::shared_ptr<torch::nn::Module> module{};
    NamedTensors trainable{};                    // each parameter once
    std::unique_ptr<DdpCore> core{};             // null if nothing is reduced
    std::unique_ptr<DdpCore::NoSync> no_sync{};  // while the core accumulates
  };

  // While it lives, gradients of this rank's stages accumulate without communication. In the last
  // part of a step, reduce() ends this for its stage.
  class AccumulationScope {
   public:
    AccumulationScope(RankPipelineStrategy& strategy, bool is_last) : strategy_(strategy) {
      strategy_.reduces_ = is_last;
      for (Unit& unit : strategy_.units_) {
        if (unit.core) unit.no_sync = std::make_unique<DdpCore::NoSync>(*unit.core);
      }
    }
    ~AccumulationScope() {
      for (Unit& unit : strategy_.units_) unit.no_sync.reset();
    }
    AccumulationScope(const AccumulationScope&) = delete;
    AccumulationScope& operator=(const AccumulationScope&) = delete;

   private:
    RankPipelineStrategy& strategy_;
  };

  int replicas() const { return mesh_.size(kData); }
  bool shards() const { return options().shard_optimizer && replicas() > 1; }
  bool is_first_replica() const { return mesh_.local_rank(kData) == 0; }
  int last_worker() const { return worker_of().back(); }
  bool has_last_stage() const { return mesh_.local_rank(kPipeline) == last_worker(); }

  template <class Function>
  auto end_all_if_it_throws(const Function& function) -> std::invoke_result_t<const Function&> {
    return lockstep::train::end_all_if_it_throws(
        [this](const std::string& reason) { end_all(reason); }, function);
  }

  // Moves and couples this rank's stages and makes a pipeline of them; the whole model stays on the
  // CPU. Other ranks wait for this in several groups.
  void make_stages(detail::TaskBase& task, const StepSettings& settings) {
    forget_last_run();
    std::vector<NamedStage> stages = cut_into_stages(task, settings);
    refuse_to_share_buffers(stages, worker_of(), name());
    synchronization_seconds_ = 0;
    {
      const SecondsScope scope(synchronization_seconds_);
      broadcast_module(task.module(), group(), settings.device);
    }
    if (share_trainable_parameters(stages)) {
      copies_.emplace(lockstep::str("strategy ", name()), copies_of_ranks(stages, worker_of()),
                      mesh_.group(kPipeline));
    }
    std::vector<pipeline::StageModule> modules;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (worker_of()[s] != mesh_.local_rank(kPipeline)) continue;
      pipeline::move_to(stages[s].module, settings.device);
      modules.push_back(stages[s].module);
      own_stages_.push_back(std::move(stages[s]));
      if (copies_) continue;
      const NamedStage& own = own_stages_.back();
      unit_of_.emplace(s, units_.size());
      units_.push_back(coupled(own.module.module().shared_from_this(), own.trainable()));
    }
    if (copies_) units_.push_back(coupled(module_of_own_stages(), trainable_of_own_stages()));
    PipelineOptions options = pipeline_options();
    if (replicas() > 1 && !copies_) {
      options.reduce = [this](int stage, const Tensors&) {
        reduce(units_[unit_of_.at(static_cast<std::size_t>(stage))]);
      };
    }
    pipe_.emplace(std::move(modules), mesh_.group(kPipeline), settings.device, options);
  }

  void forget_last_run() {
    pipe_.reset();
    frozen_stages_buffers_.clear();
    unit_of_.clear();
    units_.clear();
    own_stages_.clear();
    copies_.reset();
  }

  // A module whose children are this rank's stages.
  std::shared_ptr<torch::nn::Module> module_of_own_stages() const {
    auto module = std::make_shared<torch::nn::Module>("Stages");
    for (std::size_t i = 0; i < own_stages_.size(); ++i) {
      module->register_module(lockstep::str("stage", i),
                              own_stages_[i].module.module().shared_from_this());
    }
    return module;
  }

  // This rank's trainable parameters. Stages that share a parameter have it under one name.
  NamedTensors trainable_of_own_stages() const {
    NamedTensors all;
    for (const NamedStage& own : own_stages_) {
      const NamedTensors trainable = own.trainable();
      all.insert(all.end(), trainable.begin(), trainable.end());
    }
    return optim::distinct(all);
  }

  // Makes the core that averages the gradients of `module` over the replicas of the pipeline and
  // gives all of them the buffers of the first one. If nothing is trainable, only the buffers are
  // handled.
  Unit coupled(std::shared_ptr<torch::nn::Module> module, NamedTensors trainable) {
    Unit unit{.module = std::move(module), .trainable = std::move(trainable)};
    if (replicas() == 1) return unit;
    if (unit.trainable.empty()) {
      frozen_stages_buffers_.emplace_back(*unit.module, mesh_.group(kData));
      return unit;
    }
    const bool shares = shards() && mesh_.group(kData).shares_memory();
    unit.core = std::make_unique<DdpCore>(
        *unit.module, mesh_.group(kData),
        DdpOptions{.find_unused_parameters = options().find_unused_parameters,
                   .parameter_memory = shares ? ParameterMemory::kShared : ParameterMemory::kFlat});
    return unit;
  }

  std::unique_ptr<RunOptimizer> make_optimizer_of_stages(const OptimizerGroups& groups) {
    std::vector<StageOptimizer> optimizers;
    for (const Unit& unit : units_) {
      if (unit.trainable.empty()) continue;
      auto optimizer =
          shards() ? make_sharded_optimizer(*unit.core, *unit.module, unit.trainable, groups)
                   : make_replicated_optimizer(unit.trainable, groups, mesh_.group(kData));
      optimizers.push_back({.optimizer = std::move(optimizer), .parameters = unit.trainable});
    }
    return make_stage_optimizers(
        std::move(optimizers), groups,
        StageRanks{.pipeline = mesh_.group(kPipeline),
                   .all = mesh_.all(),
                   .is_first_replica = is_first_replica(),
                   .shards = shards(),
                   .device = settings().device,
                   .counted_elsewhere = counted_elsewhere(),
                   .end_all = [this](const std::string& reason) { end_all(reason); }});
  }

  std::set<std::string> counted_elsewhere() const {
    return copies_ ? copies_->counted_elsewhere() : std::set<std::string>();
  }

  // Rank 0's module receives the trained stages of its pipeline, a tied weight only once.
  void gather_stages() {
    NamedTensors own;
    std::set<std::string> given = counted_elsewhere();
    for (const NamedStage& stage : own_stages_) {
      for (const NamedTensors* tensors : {&stage.parameters, &stage.buffers}) {
        for (const auto& [tensor_name, tensor] : *tensors) {
          if (given.insert(tensor_name).second) own.emplace_back(tensor_name, tensor);
        }
      }
    }
    const NamedTensors all = gather_named(own, mesh_.group(kPipeline), settings().device);
    if (group().rank() != 0) return;
    const torch::NoGradGuard no_grad;
    std::unordered_map<std::string, torch::Tensor> places;
    for (const auto& item : task().module().named_parameters()) {
      places.emplace(item.key(), item.value());
    }
    for (const auto& item : task().module().named_buffers()) {
      places.emplace(item.key(), item.value());
    }
    for (const auto& [name, tensor] : all) {
      const torch::Tensor& place = places.at(name);
      if (!place.is_same(tensor)) place.detach().copy_(tensor);
    }
  }

  // The reducer would give a parameter without a gradient zeros, which weight decay and Adam would
  // treat as a gradient.
  void require_gradients(const Unit& unit) const {
    if (options().find_unused_parameters) return;
    for (const auto& [parameter_name, parameter] : unit.trainable) {
      if (parameter.grad().defined()) continue;
      throw ConfigError(str("strategy ", name(), ": parameter '", parameter_name,
                            "' received no gradient; freeze it before training, or set "
                            "StrategyOptions::find_unused_parameters"));
    }
  }

  // Called once the gradients of a unit's batch are complete, while other stages still compute.
  void reduce(Unit& unit) {
    if (!reduces_ || !unit.core) return;
    require_gradients(unit);
    unit.no_sync.reset();
    unit.core->step_without_backward();
  }

  // Called once the pipeline has ended the last part of a step. Averaged gradients are bitwise
  // equal in all replicas, but their bits may depend on the gradient's place in its bucket, which
  // differs between copies of a weight. The sum over copies is bitwise equal in all of them and
  // therefore comes last. With a sharded optimizer it comes first, because each replica then knows
  // only the mean of its shard.
  void reduce_with_copies() {
    if (shards()) {
      copies_->add_up();
    } else if (replicas() > 1) {
      copies_->fill_in();
    }
    for (Unit& unit : units_) reduce(unit);
    if (!shards()) copies_->add_up();
  }

  // Broadcasts the last worker's loss to all ranks of the pipeline.
  torch::Tensor told_to_all(const torch::Tensor& mean) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor loss =
        has_last_stage()
            ? mean.to(settings().device, torch::kFloat32).clone()
            : torch::zeros({}, torch::TensorOptions(settings().device).dtype(torch::kFloat32));
    mesh_.group(kPipeline).broadcast(loss, last_worker());
    return loss;
  }

  DeviceMesh mesh_;
  std::optional<pipeline::TiedCopies> copies_;  // if stages share a trainable parameter
  std::vector<NamedStage> own_stages_;
  std::vector<Unit> units_;
  std::map<std::size_t, std::size_t> unit_of_;  // by stage, if units are stages
  std::vector<detail::ModuleBuffers> frozen_stages_buffers_;
  bool reduces_ = false;
  double synchronization_seconds_ = 0;
  std::optional<DistributedPipeline> pipe_;
};

}  // namespace

std::unique_ptr<Strategy> make_rank_pipeline_strategy(std::string name, ProcessGroup group,
                                                      int replicas,
                                                      const StrategyOptions& options) {
  return std::make_unique<RankPipelineStrategy>(std::move(name), std::move(group), replicas,
                                                options);
}

}  // namespace lockstep::train
