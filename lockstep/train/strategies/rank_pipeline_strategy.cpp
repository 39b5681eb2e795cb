#include <lockstep/train/strategies/rank_pipeline_strategy.h>

#include <exception>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/utils.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/device_mesh.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/module_buffers.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/train/strategies/named_exchange.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/pipeline_phases.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <lockstep/train/strategies/stage_optimizers.h>
#include <lockstep/train/strategies/staged_strategy.h>

namespace lockstep {
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

  void attach(Task& task, const StepSettings& settings) override {
    end_all_if_it_throws([&] { make_stages(task, settings); });
  }

  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerOptions& options) override {
    return end_all_if_it_throws([&] { return make_optimizer_of_stages(options); });
  }

  torch::Tensor step(const Batch& batch, const StepPart& part, PhaseSeconds& phases) override {
    StageCriterion criterion(task(), settings(), part, batch.size);
    end_all_if_it_throws([&] {
      const AccumulationScope accumulation(*this, part.is_last);
      pipe_->step(criterion, batch.images, batch.labels, batch.size);
    });
    add_phases(pipe_->timeline(), 1, phases);
    const SecondsScope scope(phases.communication);
    return told_to_all(criterion.mean());
  }

  void train(bool on) override { pipe_->train(on); }
  // A reduction gives the replicas of its stage the buffers of the first one. A stage without
  // trainable parameters has no reductions.
  void begin_evaluation() override {
    end_all_if_it_throws([&] {
      for (ModuleBuffers& buffers : frozen_stages_buffers_) buffers.broadcast();
    });
  }
  void evaluate(const Batch& batch, MetricSums& sums) override {
    end_all_if_it_throws([&] {
      const Tensors outputs = pipe_->forward(Tensors{batch.images}, batch.size);
      if (has_last_stage()) task().evaluate(outputs.at(0), batch.labels, sums);
    });
  }

  void gather_module() override {
    if (is_first_replica()) end_all_if_it_throws([&] { gather_stages(); });
  }

 private:
  struct OwnStage {
    std::size_t index;
    NamedStage stage;
  };

  // While it lives, gradients of this rank's stages accumulate without communication. In the last
  // part of a step reduce() ends that for its stage.
  class AccumulationScope {
   public:
    AccumulationScope(RankPipelineStrategy& strategy, bool is_last) : strategy_(strategy) {
      strategy_.reduces_ = is_last;
      for (const OwnStage& own : strategy_.own_stages_) {
        auto& core = strategy_.cores_[own.index];
        if (core) strategy_.no_syncs_[own.index] = std::make_unique<DdpCore::NoSync>(*core);
      }
    }
    ~AccumulationScope() {
      for (auto& no_sync : strategy_.no_syncs_) no_sync.reset();
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

  // A pipeline that fails has already aborted its messages. Its other ranks may also wait for this
  // one in a collective of the pipeline, those with the same stages in a reduction or where its
  // core is made, and all ranks in a collective of the loop. The other pipelines' ranks then abort
  // in the same way.
  template <class Function>
  auto end_all_if_it_throws(const Function& function) -> std::invoke_result_t<const Function&> {
    try {
      return function();
    } catch (const std::exception& error) {
      const std::string reason = first_line(error);
      if (pipe_) pipe_->abort(reason);
      mesh_.group(kPipeline).abort(reason);
      mesh_.group(kData).abort(reason);
      group().abort(reason);
      throw;
    }
  }

  // Moves and couples this rank's stages, and makes the pipeline of them; the whole model stays on
  // the CPU. Other ranks wait for that in several groups.
  void make_stages(Task& task, const StepSettings& settings) {
    std::vector<NamedStage> stages = cut_into_stages(task, settings);
    if (const std::string shared = shared_parameter(stages); !shared.empty()) {
      throw ConfigError(lockstep::str("strategy ", name(), ": several stages share the parameter '",
                                      shared,
                                      "', which only strategy pipeline in one process can "
                                      "train"));
    }
    broadcast_module(task.module(), group(), settings.device);
    cores_.resize(stages.size());
    no_syncs_.resize(stages.size());
    std::vector<pipeline::StageModule> modules;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (worker_of()[s] != mesh_.local_rank(kPipeline)) continue;
      pipeline::move_to(stages[s].module, settings.device);
      modules.push_back(stages[s].module);
      own_stages_.push_back({s, std::move(stages[s])});
      couple(own_stages_.back());
    }
    PipelineOptions options = pipeline_options();
    if (replicas() > 1) {
      options.reduce = [this](int stage, const Tensors&) {
        reduce(static_cast<std::size_t>(stage));
      };
    }
    pipe_.emplace(std::move(modules), mesh_.group(kPipeline), settings.device, options);
  }

  // Makes the core that averages the stage's gradients over the replicas of the pipeline and gives
  // all of them the buffers of the first one. Where nothing is trained, only the buffers remain.
  void couple(const OwnStage& own) {
    if (replicas() == 1) return;
    if (own.stage.trainable().empty()) {
      frozen_stages_buffers_.emplace_back(own.stage.module.module(), mesh_.group(kData));
      return;
    }
    const bool shares = shards() && mesh_.group(kData).backend() == "shm";
    cores_[own.index] = std::make_unique<DdpCore>(
        own.stage.module.module(), mesh_.group(kData),
        DdpOptions{.parameter_memory = shares ? ParameterMemory::kShared : ParameterMemory::kFlat});
  }

  std::unique_ptr<RunOptimizer> make_optimizer_of_stages(const OptimizerOptions& options) {
    std::vector<StageOptimizer> optimizers;
    for (const OwnStage& own : own_stages_) {
      NamedTensors parameters = own.stage.trainable();
      if (parameters.empty()) continue;
      auto optimizer = shards()
                           ? make_sharded_optimizer(*cores_[own.index], own.stage.module.module(),
                                                    parameters, options)
                           : make_replicated_optimizer(parameters, options, mesh_.group(kData));
      optimizers.push_back(
          {.optimizer = std::move(optimizer), .parameters = std::move(parameters)});
    }
    return make_stage_optimizers(std::move(optimizers), options,
                                 StageRanks{.pipeline = mesh_.group(kPipeline),
                                            .all = mesh_.all(),
                                            .is_first_replica = is_first_replica(),
                                            .shards = shards(),
                                            .device = settings().device});
  }

  // Rank 0's module receives what the ranks of its pipeline have trained.
  void gather_stages() {
    NamedTensors own;
    for (const OwnStage& each : own_stages_) {
      own.insert(own.end(), each.stage.parameters.begin(), each.stage.parameters.end());
      own.insert(own.end(), each.stage.buffers.begin(), each.stage.buffers.end());
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

  // The reducer would give a parameter without a gradient zeros, which weight decay and Adam take
  // for a gradient.
  void require_gradients(std::size_t stage) const {
    for (const OwnStage& own : own_stages_) {
      if (own.index != stage) continue;
      for (const auto& [parameter_name, parameter] : own.stage.trainable()) {
        if (parameter.grad().defined()) continue;
        throw ConfigError(str("strategy ", name(), ": parameter '", parameter_name,
                              "' received no gradient; freeze it before training"));
      }
    }
  }

  // Called when a stage's gradients of a batch are complete, while other stages still compute.
  void reduce(std::size_t stage) {
    if (!reduces_ || !cores_[stage]) return;
    require_gradients(stage);
    no_syncs_[stage].reset();
    cores_[stage]->step_without_backward();
  }

  // Gives all ranks of the pipeline the loss of the last worker.
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
  std::vector<OwnStage> own_stages_;
  std::vector<std::unique_ptr<DdpCore>>
      cores_;  // one for each stage; null where nothing is reduced here
  std::vector<std::unique_ptr<DdpCore::NoSync>> no_syncs_;  // of each core, while it accumulates
  std::vector<ModuleBuffers> frozen_stages_buffers_;
  bool reduces_ = false;
  std::optional<DistributedPipeline> pipe_;
};

}  // namespace

std::unique_ptr<Strategy> make_rank_pipeline_strategy(std::string name, ProcessGroup group,
                                                      int replicas,
                                                      const StrategyOptions& options) {
  return std::make_unique<RankPipelineStrategy>(std::move(name), std::move(group), replicas,
                                                options);
}

}  // namespace lockstep
