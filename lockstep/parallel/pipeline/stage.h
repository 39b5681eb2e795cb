// One stage of a pipeline on its device, and the micro-batches that are between their forward and
// the end of their backward there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/parallel/pipeline/stage_backward.h>
#include <lockstep/parallel/pipeline/stage_message.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep::pipeline {

/// The loss of one micro-batch, a tensor of one element, from the outputs of the last stage.
using LossOfOutputs = std::function<torch::Tensor(const Tensors& outputs, int micro_batch)>;

/// What all stages are told about a step.
struct StepPlan {
  int micro_batches = 1;
  /// The seed of all random numbers of the step; see micro_batch_seed().
  std::uint64_t seed = 0;
  /// Forwards record a graph, and a backward follows each.
  bool training = true;
};

/// Used only by its worker's thread, whose current device is the stage's. Inputs and outputs may be
/// undefined tensors, which have no gradient.
///
/// A module must draw random numbers in all micro-batches of a step or in none: the stage finds out
/// in the first one whether it has to take turns with other stages that draw (see random_scope.h).
///
/// With recomputation (Chen et al., arXiv 1604.06174) a forward keeps its inputs only, and runs
/// again when the backward begins, with the same random numbers. Running statistics count each
/// micro-batch once. A module whose results depend on other buffers that its forward changes cannot
/// be recomputed.
class Stage {
 public:
  /// `tied` may be null.
  Stage(int index, StageModule module, torch::Device device, bool recompute, TiedParameters* tied);

  /// Counts from now on in `memory`, which must outlive the stage, what the stage holds in
  /// training. `received`: another rank has sent the inputs, so they count as this stage's.
  void count_memory(ActivationMemory& memory, bool received = false) {
    memory_ = &memory;
    counts_received_ = received;
  }

  /// Begins a step, and drops what a failed step before has left. Only the last stage has a `loss`,
  /// and only in training.
  void begin(const StepPlan& plan, LossOfOutputs loss = nullptr);

  /// Takes the outputs of the stage before and returns its own, both without graphs. With a loss
  /// function it returns the loss. ConfigError for a loss that has several elements or no graph.
  /// Forwards come in the order of the micro-batches.
  StageMessage forward(int micro_batch, StageMessage inputs);

  /// Takes the gradients of the outputs, as StageBackward does, and returns those of the inputs. A
  /// stage with a loss function does not use `gradients`.
  Tensors backward(int micro_batch, Tensors gradients);
  Tensors backward_input(int micro_batch, Tensors gradients);
  void backward_weight(int micro_batch);

  /// Drops the graphs of all micro-batches.
  void clear();

  int index() const { return index_; }
  torch::nn::Module& module() const { return module_.module(); }
  /// The most micro-batches that it held at once in the last step, which was training: from their
  /// forward to the end of their backward.
  int peak_activations() const { return peak_activations_; }

 private:
  struct InFlight {
    StageBackward backward{};
    torch::Tensor loss_gradient{};  ///< only in the last stage
    StageMessage inputs{};          ///< where they are needed for a recomputation
  };

  InFlight& in_flight(int micro_batch) { return in_flight_[static_cast<std::size_t>(micro_batch)]; }
  Tensors run(int micro_batch, const Tensors& inputs);
  StageMessage forward_with_graph(int micro_batch, const StageMessage& inputs);
  StageMessage forward_without_graph(int micro_batch, StageMessage inputs);
  void recompute(int micro_batch);
  /// The graph of the micro-batch and the gradients to begin with.
  StageBackward& prepare_backward(int micro_batch, Tensors& gradients);
  void end_backward(int micro_batch);
  void note_memory() const;

  const int index_;
  const StageModule module_;
  const torch::Device device_;
  const bool recompute_;
  TiedParameters* const tied_;
  ActivationMemory* memory_ = nullptr;  // where bytes are counted
  bool counts_received_ = false;

  StepPlan plan_;
  LossOfOutputs loss_;
  std::vector<InFlight> in_flight_;
  std::optional<Generators> drawn_;  // by the first micro-batch of the step
  int activations_ = 0;
  int peak_activations_ = 0;
};

/// ConfigError where the calling thread is in the forward of a stage. That forward may have the
/// random generators to itself until it ends, and the stages of a pipeline that is called there
/// would wait for them.
void refuse_pipelines_inside_stages();

}  // namespace lockstep::pipeline
