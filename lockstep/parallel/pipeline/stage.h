// One stage of a pipeline on its device, with the micro-batches that are between their forward and
// the end of their backward.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/gradient_nodes.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/parallel/pipeline/stage_backward.h>
#include <lockstep/parallel/pipeline/stage_message.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep::pipeline {

/// The loss of one micro-batch, a tensor of one element, from the outputs of the last stage.
using LossOfOutputs = std::function<torch::Tensor(const Tensors& outputs, int micro_batch)>;

/// What every stage needs to know about a step.
struct StepPlan {
  int micro_batches = 1;
  /// The seed of all random numbers of the step; see micro_batch_seed().
  std::uint64_t seed = 0;
  /// Whether forwards record a graph and are each followed by a backward.
  bool training = true;
};

/// Used only by its worker's thread, whose current device is that of the stage. Inputs and outputs
/// may be undefined tensors, which have no gradient.
///
/// Stages that draw random numbers take turns (see random_scope.h). A stage does so from the
/// beginning of its forward if it drew in the first micro-batch of the step, and otherwise from the
/// first operator that draws. A module that takes numbers from a generator without an operator of
/// LibTorch must therefore do so in the first micro-batch, too.
///
/// The first stage may change its inputs in place, which changes the batch as in a single process.
///
/// With recomputation (Chen et al., arXiv 1604.06174) a forward keeps only its inputs and runs
/// again when the backward begins, with the same random numbers. Running statistics are updated
/// once per micro-batch. A module whose results depend on other buffers that its forward changes
/// cannot be recomputed.
class Stage {
 public:
  /// `tied` may be null.
  Stage(int index, StageModule module, torch::Device device, bool recompute, TiedParameters* tied);

  /// Makes the stage count what it holds in training in `memory`, which must outlive the stage.
  /// `received` says that the inputs come from another rank and therefore count as this stage's.
  void count_memory(ActivationMemory& memory, bool received = false) {
    memory_ = &memory;
    counts_received_ = received;
  }

  /// Begins a step and drops what a failed previous step left behind. Only the last stage has a
  /// `loss`, and only in training. Throws ConfigError for a parameter of the module that is not on
  /// the stage's device any more.
  void begin(const StepPlan& plan, LossOfOutputs loss = nullptr);

  /// Takes the outputs of the previous stage and returns its own, both without graphs. With a loss
  /// function it returns the loss. Throws ConfigError if the loss has several elements or no graph.
  /// Forwards must be called in the order of the micro-batches.
  StageMessage forward(int micro_batch, StageMessage inputs);

  /// Takes the gradients of the outputs, like StageBackward, and returns those of the inputs. A
  /// stage with a loss function does not use `gradients`.
  Tensors backward(int micro_batch, Tensors gradients);
  Tensors backward_input(int micro_batch, Tensors gradients);
  void backward_weight(int micro_batch);

  /// Drops the graphs of all micro-batches.
  void clear();

  int index() const { return index_; }
  torch::nn::Module& module() const { return module_.module(); }
  /// The largest number of micro-batches that were in flight at once (between their forward and the
  /// end of their backward) in the last training step.
  int peak_activations() const { return peak_activations_; }

 private:
  struct InFlight {
    StageBackward backward{};
    torch::Tensor loss_gradient{};  ///< only in the last stage
    StageMessage inputs{};          ///< kept if needed for recomputation
  };

  void require_on_device() const;
  InFlight& in_flight(int micro_batch) { return in_flight_[static_cast<std::size_t>(micro_batch)]; }
  Tensors run(int micro_batch, const Tensors& inputs, bool loss_has_graph);
  Tensors run_with_graph(int micro_batch, const StageMessage& inputs, bool loss_has_graph,
                         std::vector<GradientSink>& sinks);
  StageMessage forward_with_graph(int micro_batch, const StageMessage& inputs);
  StageMessage forward_without_graph(int micro_batch, StageMessage inputs);
  void recompute(int micro_batch);
  /// Returns the graph of the micro-batch and sets the gradients from which its backward starts.
  StageBackward& prepare_backward(int micro_batch, Tensors& gradients);
  void end_backward(int micro_batch);
  void note_memory() const;

  const int index_;
  const StageModule module_;
  const torch::Device device_;
  const bool recompute_;
  TiedParameters* const tied_;
  ActivationMemory* memory_ = nullptr;  // counts bytes; may be null
  bool counts_received_ = false;

  StepPlan plan_;
  LossOfOutputs loss_;
  std::vector<InFlight> in_flight_;
  std::optional<Generators> drawn_;  // set by the first micro-batch of the step
  int activations_ = 0;
  int peak_activations_ = 0;
};

/// Throws ConfigError if the calling thread is running a stage's forward. That forward may have
/// exclusive use of the random generators until it ends, and the stages of a pipeline called there
/// would wait for them.
void refuse_pipelines_inside_stages();

}  // namespace lockstep::pipeline
