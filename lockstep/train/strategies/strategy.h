// How a training step is computed: by which copies or parts of the model, on which devices and
// ranks. The training loop asks for a step without knowing the strategy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/data/datasets/batch_structure.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/train/optimization/optimizer_groups.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/run_optimizer.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metrics.h>
#include <lockstep/train/task/optimizer_configuration.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

/// The share of the data that a rank trains and evaluates on. Ranks with an equal `rank` here load
/// identical batches.
struct LOCKSTEP_API DataShare {
  int rank = 0;
  int size = 1;        ///< number of shares
  bool counts = true;  ///< whether this rank adds the share to the sums; true on one rank per share
};

/// Settings common to all steps of a run.
struct LOCKSTEP_API StepSettings {
  torch::Device device = torch::kCPU;  ///< where the batches are
  Precision precision = Precision::k32;
  const GradScaler* scaler = nullptr;  ///< scales the losses; null: they are not scaled
  bool deterministic = false;          ///< two runs give identical bits, at any cost
  /// With several optimizers, the parameters of each, which are all trainable ones, each once.
  /// During a step of an optimizer, only its own require a gradient. Empty: there is one optimizer.
  std::vector<Tensors> parameters_of_optimizers{};
};

/// Which part of an optimizer step a batch is.
struct LOCKSTEP_API StepPart {
  double weight = 1;          ///< factor of its loss
  bool is_last = true;        ///< gradients accumulate until the last part and are reduced with it
  std::size_t optimizer = 0;  ///< index of the optimizer that takes the step
};

/// Not thread-safe. The destructor does not communicate. All ranks must make the same calls in the
/// same order.
class LOCKSTEP_API Strategy {
 public:
  virtual ~Strategy() = default;
  /// One of strategy_names().
  virtual const std::string& name() const = 0;
  /// All ranks of the run.
  virtual ProcessGroup& group() = 0;
  /// The share of the data that this rank loads; known from construction on.
  virtual DataShare data_share() { return {.rank = group().rank(), .size = group().size()}; }
  /// Fills in the members of RunInfo that only this strategy knows.
  virtual void describe(RunInfo&) const {}
  /// How a rank's batch is divided for computation, which batch normalisation depends on.
  /// Checkpoints store the text, and a resumed run warns if its own differs.
  virtual std::string batch_parts() const { return "whole"; }

  /// Aborts every group in which other ranks may wait for this one: their waits throw `reason`. The
  /// first reason wins. Does not block.
  virtual void end_all(const std::string& reason) {
    if (group().size() > 1) group().abort(reason);
  }

  /// Moves the task's module to the device where its state is to be loaded: `device`, unless
  /// attach() moves the module.
  virtual void place(torch::nn::Module& module, torch::Device device) { module.to(device); }
  /// Collective. Called once per run, after place() and after rank 0 has loaded its state; a
  /// strategy may serve several runs in sequence. Afterwards each rank holds those of rank 0's
  /// parameters and buffers that it needs. The task must outlive the strategy's use of it. Throws
  /// ConfigError for a task that the strategy cannot train.
  virtual void attach(detail::TaskBase& task, const StepSettings& settings) = 0;
  /// Whether StepSettings may name the parameters of several optimizers.
  virtual bool takes_several_optimizers() const { return false; }
  /// The devices on which this process computes, possibly with repetitions. Empty if that is only
  /// the run's device. Known after attach().
  virtual std::vector<torch::Device> devices() const { return {}; }
  /// Seconds that the last attach() spent on sending rank 0's parameters and buffers to the other
  /// ranks.
  virtual double synchronization_seconds() { return 0; }
  /// Whether the strategy's threads use all processors, so that the caller computes with a single
  /// thread during the run. Known after attach().
  virtual bool has_all_processors() const { return false; }
  /// Called after attach(). Makes an optimizer of the trainable parameters that are in a group. The
  /// strategy must outlive the optimizer.
  virtual std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) = 0;
  /// Called after attach(). Makes an optimizer of `parameters` by a function of the program. Throws
  /// ConfigError if the strategy divides or moves what the optimizer would hold.
  virtual std::unique_ptr<RunOptimizer> make_own_optimizer(const NamedTensors& parameters,
                                                           const MakeOwnOptimizer& make);

  /// Seeds the random number generators for a step, on the CPU and on `device`.
  virtual void seed(std::uint64_t seed, torch::Device device);
  /// Why a CUDA graph cannot record this strategy's step() and its optimizer's step, as the end of
  /// a sentence; empty if it can. Called after attach().
  virtual std::string why_not_captured() {
    return "computes with several devices, threads or stages; use strategy ddp or single";
  }

  /// Collective. Runs the forward and backward of a batch. After the last part of a step, the
  /// gradients are the means over all shares. Adds the seconds of forward, backward and
  /// communication to `phases`. Returns the mean loss over this rank's batch, a tensor without
  /// dimensions and without an autograd graph.
  virtual torch::Tensor step(const LoadedBatch& batch, const StepPart& part,
                             PhaseSeconds& phases) = 0;
  /// As above, for a batch that no loader made.
  template <BatchOfTensors B>
  torch::Tensor step(const B& batch, const StepPart& part, PhaseSeconds& phases) {
    LoadedBatch loaded;
    loaded.store(batch);
    return step(loaded, part, phases);
  }
  /// For strategies whose step() does not wait for its devices' timings: waits for them, and
  /// separates exposed communication from the rest of backward in `phases`. All step() calls since
  /// the last settle_phases() must have been given the same `phases`.
  virtual void settle_phases(PhaseSeconds& /*phases*/) {}

  /// Called after modes (train() and eval()) of the task's module or its descendants have changed.
  /// Replicas then have the modes of their originals. Stages share the task's submodules; the
  /// modules that they have in addition get the mode of the task's module.
  virtual void follow_modes() {}
  /// Collective. Called before an evaluation, with gradients disabled. Afterwards all replicas have
  /// the buffers of the first one.
  virtual void begin_evaluation() = 0;
  /// Adds the task's evaluation of a batch to `metrics`, on the ranks whose data share counts.
  /// Collective only over the ranks of one data share.
  virtual void evaluate(const LoadedBatch& batch, Metrics& metrics) = 0;
  template <BatchOfTensors B>
  void evaluate(const B& batch, Metrics& metrics) {
    LoadedBatch loaded;
    loaded.store(batch);
    evaluate(loaded, metrics);
  }

  /// Collective. Makes the task's module on rank 0 hold the whole model, to be saved.
  virtual void gather_module() {}

  /// Whether the task's module holds all parameters, up to date, on every rank after each step. A
  /// weight average requires this.
  virtual bool module_is_current() const { return true; }
  /// Whether the module's parameters on rank 0 also have the gradients of all ranks after each
  /// step.
  virtual bool module_has_gradients() const { return module_is_current(); }

  /// Spans of the strategy's own threads in the last steps, and the times of its gradient
  /// reductions, for a trace. Excludes spans recorded by SpanScope.
  virtual std::vector<Span> spans() { return {}; }

  /// For each device of this process, the largest number of bytes that it held in the last step:
  /// parameters, gradients, buffers, their part of `optimizer_state` (see RunOptimizer::state()),
  /// and activations. Empty if the strategy does not know it.
  virtual std::vector<std::int64_t> device_bytes(const NamedTensors& /*optimizer_state*/) const {
    return {};
  }
};

/// Where strategy dp computes the loss.
enum class DpLoss {
  kGathered,  ///< on the first device, from the outputs of all replicas
  kOnEach,    ///< on each device, from its replica's output; averaged by samples
};

/// "gathered" and "on-each".
LOCKSTEP_API const std::vector<std::string>& dp_loss_names();
LOCKSTEP_API std::string to_string(DpLoss loss);
/// The inverse of to_string(). Throws ConfigError for an unknown name.
LOCKSTEP_API DpLoss parse_dp_loss(const std::string& name);

/// Options of individual strategies. Each strategy ignores those of the others.
struct LOCKSTEP_API StrategyOptions {
  /// dp: devices of the replicas, which are GPUs of one type or CPUs and may be repeated. The first
  /// one must be TrainerOptions::device. Empty: the run's device, or, on a CPU, one replica per
  /// processor, at most 8.
  std::vector<torch::Device> devices{};
  /// dp: relative share of a batch for each device, a positive number each. Empty: equal shares.
  std::vector<double> device_weights{};
  DpLoss dp_loss = DpLoss::kGathered;

  /// pipeline and hybrid: number of stages of the model. Each worker has one stage, or two with the
  /// schedules zbv and interleaved. A worker is a rank, or, if strategy pipeline has one process, a
  /// thread on one of `devices` (empty: all threads are on the run's device).
  int stages = 2;
  /// pipeline and hybrid: number of micro-batches that the batch of a pipeline is divided into. A
  /// batch with fewer samples is divided into single samples.
  int micro_batches = 4;
  Schedule schedule = Schedule::k1F1B;
  /// pipeline and hybrid: forwards keep only the inputs of their stages and run again before the
  /// backward (PipelineOptions::recompute): less memory for activations, more time.
  bool recompute = false;
  /// hybrid: ranks with the same stages shard the optimizer's state among them, as zero1 does.
  bool shard_optimizer = false;
  /// ddp and zero1: batch normalisation computes its statistics over the batches of all ranks
  /// (sync_batch_norm.h).
  bool sync_batchnorm = false;
  /// ddp, zero1 and hybrid: the loss of a step may be independent of some parameters, possibly
  /// different ones on each rank (DdpOptions::find_unused_parameters). Without it, such a parameter
  /// is an error. The strategies in one process, and a pipeline without replicas, allow it anyway:
  /// a parameter without a gradient is not stepped.
  bool find_unused_parameters = false;
  /// ddp and zero1: each step gives every parameter as many gradients as the first one did, such as
  /// two to a layer that is recomputed twice within backward (DdpOptions::static_graph).
  bool static_graph = false;
  /// ddp and zero1: size of a gradient bucket in MiB (DdpOptions::bucket_cap_mb). Absent: 1 for the
  /// first buckets, 25 for the others.
  std::optional<double> bucket_cap_mb{};
  /// pipeline in one process: timeout of a stage that waits for another stage's message. Between
  /// ranks the group's timeout applies.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// pipeline in one process: also counts the bytes of activations for Strategy::device_bytes(),
  /// which takes time.
  bool measure_memory = false;
};

/// Makes the strategy called `name`. "single" trains in one process (ConfigError in a larger
/// group). "ddp" replicates the model and averages gradients. "zero1" also shards the optimizer,
/// with parameters in memory shared by all ranks if possible (ZeroRedundancyOptimizer). "dp" has a
/// replica on each device of one process (DataParallel). "pipeline" has the stages of one model on
/// threads of one process (Pipeline) or on ranks (DistributedPipeline). "hybrid" has several such
/// pipelines on ranks, which average their gradients stage by stage while the pipelines still run,
/// or, for stages that share a parameter, after they have ended. Throws ConfigError for an unknown
/// name, and for options that do not fit the strategy. Collective if a pipeline is on ranks.
LOCKSTEP_API std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group,
                                                     const StrategyOptions& options = {});

/// The names that make_strategy() knows.
LOCKSTEP_API const std::vector<std::string>& strategy_names();

}  // namespace lockstep
