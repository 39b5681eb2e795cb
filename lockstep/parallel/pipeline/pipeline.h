// Pipeline: a model split into stages on several devices or cores, through which each batch passes
// in micro-batches.
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
// Like torch.distributed.pipelining, but the stages run on threads of this process;
// DistributedPipeline runs them on ranks. docs/adr/018-pipelines-cut-the-graph.md explains the
// design.
//
// Gradients are the same as those of a single process that accumulates the same micro-batches:
//
//   for (i = 0; i < micro_batches; ++i) {  // n_i of the n samples
//     (criterion(model(x_i), y_i) * (n_i / n)).backward();
//   }
//
// All schedules, and that process, produce the same bits, as long as each worker computes with as
// many OpenMP threads as the process. This also holds for weights used more than once, in one stage
// or several; for dropout with the seeds of pipeline::micro_batch_seed(); and for batch
// normalisation, which takes its statistics from each micro-batch separately, as with accumulation.
// Running statistics shared by two stages of one worker are updated in the order of the table.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/parallel/pipeline/stage_module.h>

namespace lockstep {

namespace pipeline {
class StepTimes;
}
namespace pipeline::detail {

// Whether the criterion's declaration says what its first parameter is: it is a function, an object
// with operators() that are no templates there, or a module holder whose module has such a
// forward(). Does not instantiate a generic callable, whose body need not compile: a template
// cannot deduce a type from a list in braces.
template <class Criterion>
constexpr bool declares_its_arguments() {
  using Plain = std::remove_cv_t<Criterion>;
  if constexpr (requires { typename Plain::ContainedType; }) {
    return requires { &Plain::ContainedType::forward; } ||
           requires(Criterion& criterion, const torch::Tensor& y) { criterion->forward({y}, y); };
  } else {
    return std::is_function_v<std::remove_pointer_t<Plain>> || requires { &Plain::operator(); } ||
           requires(Criterion& criterion, const torch::Tensor& y) { criterion({y}, y); };
  }
}

// Whether criterion(outputs, target) compiles. A holder's own operator() cannot be asked.
template <class Criterion, class Outputs>
constexpr bool takes() {
  if constexpr (requires { typename std::remove_cv_t<Criterion>::ContainedType; }) {
    return requires(Criterion& criterion, const Outputs& outputs, const torch::Tensor& target) {
      criterion->forward(outputs, target);
    };
  } else {
    return std::is_invocable_v<Criterion&, const Outputs&, const torch::Tensor&>;
  }
}

// Whether loss_of_criterion() accepts the criterion. The result of std::bind() declares nothing,
// but can be asked; what it binds may be generic.
template <class Criterion>
constexpr bool has_one_meaning() {
  if constexpr (declares_its_arguments<Criterion>()) {
    return true;
  } else if constexpr (std::is_bind_expression_v<std::remove_cv_t<Criterion>>) {
    return takes<Criterion, torch::Tensor>() != takes<Criterion, Tensors>();
  } else {
    return false;
  }
}

template <class Criterion>
constexpr bool is_reference_wrapper() {
  using Plain = std::remove_cv_t<Criterion>;
  return !std::is_same_v<std::unwrap_reference_t<Plain>, Plain>;
}

// `criterion` takes one output and the target, or all outputs and the target. Which of the two is
// read from its declaration. A generic callable would accept either, and outputs[0] would be the
// first row of the output instead of the first output. A criterion that declares both, as overloads
// or with a parameter such as at::TensorList, gets a list if there are several outputs.
template <class Criterion>
PipelineLoss loss_of_criterion(Criterion& criterion) {
  if constexpr (is_reference_wrapper<Criterion>()) {
    return loss_of_criterion(criterion.get());
  } else if constexpr (!has_one_meaning<Criterion>()) {
    static_assert(has_one_meaning<Criterion>(),
                  "the criterion's first parameter has no fixed type, so that it is not known "
                  "whether it takes one output or a list of them; use a lambda that declares it: "
                  "(const torch::Tensor& output, const torch::Tensor& y) or "
                  "(const lockstep::Tensors& outputs, const torch::Tensor& y)");
    return {};
  } else {
    constexpr bool kTakesOne = takes<Criterion, torch::Tensor>();
    constexpr bool kTakesAll = takes<Criterion, Tensors>();
    static_assert(kTakesOne || kTakesAll,
                  "the criterion must take (const torch::Tensor& output, const torch::Tensor& y) "
                  "or (const lockstep::Tensors& outputs, const torch::Tensor& y)");
    return [&criterion](const Tensors& outputs, const torch::Tensor& target) -> torch::Tensor {
      if constexpr (kTakesOne && kTakesAll) {
        return outputs.size() == 1 ? criterion(outputs[0], target) : criterion(outputs, target);
      } else if constexpr (kTakesAll) {
        return criterion(outputs, target);
      } else {
        return criterion(outputs.at(0), target);
      }
    };
  }
}

}  // namespace pipeline::detail

/// Owns a thread for each worker and shares the modules, which it moves to their devices. A worker
/// computes the stages of one device. Between steps the modules may be used and changed like any
/// other, but their parameters must remain the same tensors. A stage must not change its inputs in
/// place if the previous stage needs them for its backward; LibTorch detects this. If the first
/// stage or the criterion changes its input in place, it changes the caller's batch, as in a single
/// process. Not thread-safe.
///
/// A stage must not call a pipeline, neither this one nor another: step() and forward() throw a
/// ConfigError there.
///
/// The workers compute in the caller's inference mode, autocast settings and current streams. Work
/// that the caller queued on these streams runs before the step; work queued afterwards sees the
/// loss and the gradients.
///
/// If a stage throws, the other workers stop after their current action, and step() throws an error
/// that names the worker, the stage and the action. If the original error is a Lockstep type, the
/// new error has that type; the original is nested in it. The gradients are then incomplete and
/// must be zeroed. The pipeline remains usable.
class LOCKSTEP_API Pipeline {
 public:
  /// Stage s of the model is `stages[s]`. There is one worker for each of `devices`; a CPU may
  /// occur several times. The schedule determines the stages of worker w of p: stage w for gpipe,
  /// 1f1b and zb-h1; stages w, p + w, 2p + w and so on for interleaved; stages w and 2p - 1 - w for
  /// zbv. Throws ConfigError if the numbers do not match, if a device does not exist, if stages on
  /// different devices share a parameter or a buffer, or if stages of different workers share a
  /// batch or instance normalisation with running statistics. Stages of different workers must not
  /// share any other buffer that they write to.
  Pipeline(std::vector<pipeline::StageModule> stages, std::vector<torch::Device> devices,
           PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Runs forward and backward for a batch, whose samples are along dimension 0 of `x` and `y`.
  /// Returns the loss of the batch on the last stage's device, without a graph, and accumulates the
  /// gradients into the parameters. The criterion runs on the last stage's worker and returns one
  /// element. It declares its first parameter: criterion(const torch::Tensor& output, y) gets the
  /// first output of the last stage, criterion(const Tensors& outputs, y) all of them, and one that
  /// declares both gets a list if there are several outputs. It may be std::ref() of a callable. A
  /// generic callable, such as a lambda with `const auto&`, does not compile. A batch with fewer
  /// samples than micro-batches is split into single samples; with a user-defined table it causes a
  /// ConfigError.
  ///
  /// Each call of step() or forward() draws once from the CPU's default generator to seed its
  /// random numbers, so torch::manual_seed makes steps reproducible with any schedule. `x` gets no
  /// gradient.
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const torch::Tensor& x, const torch::Tensor& y) {
    return step(std::forward<Criterion>(criterion), Tensors{x}, y);
  }
  /// step() for a first stage that takes several tensors; all but the first may be undefined.
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const Tensors& x, const torch::Tensor& y) {
    return step_with(pipeline::detail::loss_of_criterion(criterion), x, y);
  }

  /// The outputs of the last stage, computed in micro-batches without a graph and concatenated
  /// along dimension 0. Outputs without dimensions become a vector with one element for each
  /// micro-batch. Throws ConfigError if the outputs of the micro-batches do not fit together. Call
  /// eval() first if the modules distinguish it from training.
  torch::Tensor forward(const torch::Tensor& x);
  /// forward() for several inputs and outputs.
  Tensors forward(const Tensors& x);

  /// Calls train(on) on the modules of all stages.
  void train(bool on = true);
  void eval() { train(false); }

  /// The parameters of all stages, without duplicates, in the order of the stages.
  /// clip_grad_norm_() on them clips by the norm of the whole model.
  Tensors parameters() const;
  /// The actions of the workers in a step, including messages.
  const pipeline::Table& table() const;
  /// What each worker did in the last step, and when. forward() does not count as a step. On
  /// GPUs the times are those of the devices, for which the call waits. The reference is valid
  /// until the next step.
  const pipeline::Timeline& timeline() const;
  /// For the Trainer's strategies: the times of the last step, which a GPU may not have performed
  /// yet; see step_times.h. Not null after a step.
  std::shared_ptr<const pipeline::StepTimes> step_times() const;
  /// Writes timeline() to a file for Perfetto or chrome://tracing, with a row for each worker.
  /// Throws DataError if the file cannot be written.
  void write_trace(const std::filesystem::path& path) const;
  /// For each stage, the largest number of micro-batches whose activations it held at once in the
  /// last step.
  std::vector<int> peak_activations() const;
  /// The peak bytes of activations in the last step, for each stage and each worker;
  /// activation_memory.h says what counts. Throws ConfigError without
  /// PipelineOptions::measure_memory.
  ActivationBytes peak_activation_bytes() const;

 private:
  torch::Tensor step_with(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
