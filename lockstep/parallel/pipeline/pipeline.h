// Pipeline: one model in stages on several devices or cores, and batches that go through it in
// parts.
//
//   lockstep::Pipeline pipe({stage0, stage1}, {device0, device1},
//                           {.micro_batches = 8, .schedule = lockstep::Schedule::kZbH1});
//   torch::optim::SGD optimizer(pipe.parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     auto loss = pipe.step(criterion, x, y);  // forward and backward of the whole batch
//     optimizer.step();
//   }
//
// Like torch.distributed.pipelining, but the stages are threads of this process;
// DistributedPipeline has them on ranks. docs/adr/018-pipelines-cut-the-graph.md says why it is
// made as it is.
//
// Gradients are added up as one process does that accumulates the same micro-batches:
//
//   for (i = 0; i < micro_batches; ++i) {  // n_i of the n samples
//     (criterion(model(x_i), y_i) * (n_i / n)).backward();
//   }
//
// All schedules, and that process, give the same bits, as long as each worker computes with as many
// OpenMP threads as the process. That holds for weights that a stage, or several, use more than
// once, for dropout with the seeds of pipeline::micro_batch_seed(), and for batch normalisation,
// which takes its statistics from each micro-batch by itself, as accumulation does. Running
// statistics that two stages of one worker share follow the order of the table.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/parallel/pipeline/stage_module.h>

namespace lockstep {

namespace pipeline::detail {

// `criterion` takes one output and the target, or all outputs and the target.
template <class Criterion>
PipelineLoss loss_of_criterion(Criterion& criterion) {
  return [&criterion](const Tensors& outputs, const torch::Tensor& target) -> torch::Tensor {
    if constexpr (std::is_invocable_v<Criterion&, const torch::Tensor&, const torch::Tensor&>) {
      return criterion(outputs.at(0), target);
    } else {
      return criterion(outputs, target);
    }
  };
}

}  // namespace pipeline::detail

/// Owns a thread for each worker and shares the modules, which it moves to their devices. A worker
/// computes the stages of one device. Between steps the modules may be used and changed like any
/// other, but their parameters must stay the same tensors. A stage must not change its inputs in
/// place where the stage before needs them for its backward; LibTorch notices. Not thread-safe.
///
/// A stage cannot call a pipeline, neither this one nor another one: step() and forward() are a
/// ConfigError there.
///
/// The workers compute in the caller's inference mode, autocast and current streams. What the
/// caller has queued on these streams comes before the step, and what it queues afterwards finds
/// the loss and the gradients.
///
/// If anything throws in a stage, the other workers stop when the action that they are in has
/// ended, and step() throws an error that names the worker, the stage and the action. It has the
/// type of the original if that is one of Lockstep's, and the original is nested in it. The
/// gradients are then incomplete: zero them. The pipeline can be used again.
class Pipeline {
 public:
  /// Stage s of the model is `stages[s]`. There is a worker for each of `devices`; a CPU may occur
  /// there several times. The schedule says which stages worker w of p has: stage w for gpipe, 1f1b
  /// and zb-h1; stages w, p + w, 2p + w and so on for interleaved; w and 2p - 1 - w for zbv.
  /// ConfigError where numbers do not fit, where a device does not exist, where stages on different
  /// devices share a parameter or a buffer, and where stages of different workers share a batch or
  /// instance normalisation with running statistics. Stages of different workers must not share any
  /// other buffer that they write to.
  Pipeline(std::vector<pipeline::StageModule> stages, std::vector<torch::Device> devices,
           PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Forward and backward of a batch, whose samples are along dimension 0 of `x` and `y`. Returns
  /// the loss of the batch on the last stage's device, without a graph; the gradients are added to
  /// those of the parameters. `criterion(output, y)` runs on the last stage's worker and returns
  /// one element; a criterion that takes a list of outputs gets all of them. A batch with fewer
  /// samples than micro-batches goes through in as many parts as it has samples; with a table of
  /// the user's own it is a ConfigError.
  ///
  /// The seeds of a call's random numbers come from one draw of the CPU's default generator, also
  /// in forward(): torch::manual_seed makes steps reproducible, whatever the schedule. `x` gets no
  /// gradient.
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const torch::Tensor& x, const torch::Tensor& y) {
    return step(std::forward<Criterion>(criterion), Tensors{x}, y);
  }
  /// step() for a first stage that takes several tensors, of which those after the first may be
  /// undefined.
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const Tensors& x, const torch::Tensor& y) {
    return step_with(pipeline::detail::loss_of_criterion(criterion), x, y);
  }

  /// The outputs of the last stage, in micro-batches and without a graph, joined along dimension 0.
  /// Call eval() first where the modules have that.
  torch::Tensor forward(const torch::Tensor& x);
  /// forward() for several inputs and outputs.
  Tensors forward(const Tensors& x);

  /// Calls train(on) of all stages' modules.
  void train(bool on = true);
  void eval() { train(false); }

  /// The parameters of all stages, each once, in the order of the stages. clip_grad_norm_() of them
  /// clips by the norm of the whole model.
  Tensors parameters() const;
  /// What the workers do in a step, with messages.
  const pipeline::Table& table() const;
  /// What the workers did in the last step: how busy they were, and when. A forward() is no step.
  /// On GPUs the times are those of the threads, which queue kernels.
  const pipeline::Timeline& timeline() const;
  /// timeline() as a file for Perfetto or chrome://tracing, a row for each worker. DataError where
  /// it cannot be written.
  void write_trace(const std::filesystem::path& path) const;
  /// For each stage the most micro-batches whose activations it held at once in the last step.
  std::vector<int> peak_activations() const;
  /// The most bytes that the activations of each stage, and of each worker, took at once in the
  /// last step; activation_memory.h says what counts. ConfigError without
  /// PipelineOptions::measure_memory.
  ActivationBytes peak_activation_bytes() const;

 private:
  torch::Tensor step_with(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
