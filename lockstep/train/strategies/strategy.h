// How a training step is computed: by which copies or parts of the model, on which devices and
// ranks. The training loop asks for a step, and does not know which strategy it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/run_optimizer.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metrics.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

/// Which part of the data a rank trains and evaluates on. Ranks with the same `rank` here load the
/// same batches.
struct DataShare {
  int rank = 0;
  int size = 1;        ///< number of shares
  bool counts = true;  ///< one rank of each share adds the share's samples to the sums
};

/// What all steps of a run have in common.
struct StepSettings {
  torch::Device device = torch::kCPU;  ///< where the batches are
  Precision precision = Precision::k32;
  const GradScaler* scaler = nullptr;  ///< scales the losses; null: they are not scaled
  bool deterministic = false;          ///< two runs give the same bits, whatever that costs
};

/// Which part of an optimizer step a batch is.
struct StepPart {
  double weight = 1;    ///< factor of its loss
  bool is_last = true;  ///< gradients are reduced with this part; before it they accumulate
};

/// Not thread-safe. The destructor does not communicate. All ranks make the same calls in the same
/// order.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// One of strategy_names().
  virtual const std::string& name() const = 0;
  /// All ranks of the run.
  virtual ProcessGroup& group() = 0;
  /// Which part of the data this rank loads; known from the construction on.
  virtual DataShare data_share() { return {.rank = group().rank(), .size = group().size()}; }
  /// Fills in the members of RunInfo that only this strategy has.
  virtual void describe(RunInfo&) const {}
  /// The parts in which a rank's batch is computed: batch normalisation depends on them.
  /// Checkpoints keep the text, and a resumed run compares it.
  virtual std::string batch_parts() const { return "whole"; }

  /// Ends every group in which other ranks may wait for this one: their waits throw `reason`. The
  /// first reason wins. Does not block.
  virtual void end_all(const std::string& reason) {
    if (group().size() > 1) group().abort(reason);
  }

  /// Moves the task's module to where its state is to be loaded. That is `device`, unless attach()
  /// moves the module.
  virtual void place(torch::nn::Module& module, torch::Device device) { module.to(device); }
  /// Collective. Called once for each run, after place() and when rank 0 has loaded its state: a
  /// strategy may serve several runs, one after the other. Afterwards all ranks hold rank 0's
  /// parameters and buffers, as far as they need them. The task must outlive the strategy's use.
  /// ConfigError for a task that the strategy cannot train.
  virtual void attach(Task& task, const StepSettings& settings) = 0;
  /// The devices on which this process computes, some perhaps several times; empty: on the run's
  /// alone. Known after attach().
  virtual std::vector<torch::Device> devices() const { return {}; }
  /// Seconds of the last attach() in which the ranks were given rank 0's parameters and buffers.
  virtual double synchronization_seconds() { return 0; }
  /// Whether its threads have all processors, so that the caller computes alone while the run
  /// lasts. Known after attach().
  virtual bool has_all_processors() const { return false; }
  /// Called after attach(). The strategy must outlive the optimizer.
  virtual std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerOptions& options) = 0;

  /// Seeds the random numbers of a step, on the CPU and on `device`.
  virtual void seed(std::uint64_t seed, torch::Device device);
  /// Why a CUDA graph cannot record this strategy's step() and the optimizer's, as the end of a
  /// sentence; empty where it can. Called after attach().
  virtual std::string why_not_captured() {
    return "computes with several devices, threads or stages; use --strategy ddp or single";
  }

  /// Collective. Forward and backward of a batch; after the last part of a step, the gradients are
  /// the means over all shares. Adds the seconds of forward, backward and communication to
  /// `phases`. Returns the mean loss over this rank's batch, a tensor without dimensions and
  /// without a graph.
  virtual torch::Tensor step(const Batch& batch, const StepPart& part, PhaseSeconds& phases) = 0;
  /// On a device, where step() does not wait for times: waits for it, and tells exposed
  /// communication apart from the rest of backward in `phases`, to which all step()s since the last
  /// call have added.
  virtual void settle_phases(PhaseSeconds& /*phases*/) {}

  /// Calls train(on) of what the strategy has made of the task's module, such as replicas or
  /// stages. The caller has set the mode of the module itself.
  virtual void train(bool /*on*/) {}
  /// Collective. Called before an evaluation, without gradients. Afterwards all replicas have the
  /// buffers of the first one.
  virtual void begin_evaluation() = 0;
  /// Adds what the task says of a batch, on the ranks whose data share counts.
  /// Collective only over the ranks of one data share.
  virtual void evaluate(const Batch& batch, Metrics& metrics) = 0;

  /// Collective. Makes the task's module on rank 0 hold the whole model, to be saved.
  virtual void gather_module() {}

  /// Whether on every rank the task's module, where attach() has left it, has all parameters as
  /// they are after each step. A weight average needs that.
  virtual bool module_is_current() const { return true; }
  /// Whether on rank 0 its parameters also have the gradients of all ranks after each step.
  virtual bool module_has_gradients() const { return module_is_current(); }

  /// What its own threads did in the last steps, and when its gradients were reduced, for a trace.
  /// Spans that SpanScope records are not among them.
  virtual std::vector<Span> spans() { return {}; }

  /// For each device of this process the most bytes that it held in the last step: its parameters,
  /// their gradients, buffers, what `optimizer_state` (see RunOptimizer::state()) has of them, and
  /// activations. Empty where the strategy does not know it.
  virtual std::vector<std::int64_t> device_bytes(const NamedTensors& /*optimizer_state*/) const {
    return {};
  }
};

/// Where strategy dp computes the loss.
enum class DpLoss {
  kGathered,  ///< on the first device, of the outputs of all replicas
  kOnEach,    ///< on each device, of its replica's output; the losses are averaged by samples
};

/// "gathered" or "on-each".
std::string to_string(DpLoss loss);
/// The inverse; ConfigError for another word.
DpLoss parse_dp_loss(const std::string& name);

/// What some of the strategies need to know; the others ignore it.
struct StrategyOptions {
  /// dp: a replica on each. GPUs of one type, or CPUs, which may occur several times. The first one
  /// is TrainerOptions::device. Empty: the run's device, or where that is the CPU a replica for
  /// each processor, at most 8.
  std::vector<torch::Device> devices{};
  /// dp: how much of a batch each device gets, in proportion; a positive number for each device.
  /// Empty: equal parts.
  std::vector<double> device_weights{};
  DpLoss dp_loss = DpLoss::kGathered;

  /// pipeline and hybrid: number of stages of the model. Each worker has one of them, or two with
  /// the schedules zbv and interleaved. A worker is a rank; where strategy pipeline has one
  /// process, it is a thread on one of `devices` (empty: all threads are on the run's device).
  int stages = 2;
  /// pipeline and hybrid: parts that the batch of a pipeline is cut into. A smaller batch goes
  /// through in as many parts as it has samples.
  int micro_batches = 4;
  Schedule schedule = Schedule::k1F1B;
  /// pipeline and hybrid: forwards keep the inputs of their stages only, and run again before the
  /// backward (PipelineOptions::recompute): less memory for activations, more time.
  bool recompute = false;
  /// hybrid: the ranks that have the same stages divide the optimizer's state among them, as zero1
  /// does.
  bool shard_optimizer = false;
  /// ddp and zero1: batch normalisation takes the statistics of all ranks' batches together
  /// (sync_batch_norm.h).
  bool sync_batchnorm = false;
  /// ddp and zero1: MiB of gradients that are reduced together (DdpOptions::bucket_cap_mb). Absent:
  /// 25, of the first ones 1.
  std::optional<double> bucket_cap_mb{};
  /// pipeline in one process: how long a stage waits for another stage's message. Between ranks the
  /// group's timeout holds.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// pipeline in one process: also counts the bytes of activations, which takes time, so that
  /// Strategy::device_bytes() knows them.
  bool measure_memory = false;
};

/// "single" trains in one process (ConfigError in a larger group), "ddp" replicates the model and
/// averages gradients, "zero1" shards the optimizer beside that, with parameters that all ranks
/// share where they can (ZeroRedundancyOptimizer). "dp" has a replica on each device of one process
/// (DataParallel). "pipeline" has the stages of one model on threads of one process (Pipeline) or
/// on ranks (DistributedPipeline), "hybrid" several such pipelines on ranks, whose gradients are
/// averaged stage by stage while the pipelines still run; where stages share a parameter, after
/// they have ended. ConfigError for another name, and for options that do not fit. Collective where
/// a pipeline is on ranks.
std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group,
                                        const StrategyOptions& options = {});

/// The names that make_strategy() knows.
const std::vector<std::string>& strategy_names();

}  // namespace lockstep
