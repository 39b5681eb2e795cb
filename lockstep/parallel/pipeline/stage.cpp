#include <lockstep/parallel/pipeline/stage.h>

#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/registered_tensors.h>
#include <lockstep/parallel/pipeline/micro_batches.h>
#include <lockstep/parallel/pipeline/saved_buffers.h>

namespace lockstep::pipeline {
namespace {

// Whether this thread is in the forward of a stage.
thread_local bool in_stage_forward = false;

class StageForwardScope {
 public:
  StageForwardScope() { in_stage_forward = true; }
  ~StageForwardScope() { in_stage_forward = false; }
  StageForwardScope(const StageForwardScope&) = delete;
  StageForwardScope& operator=(const StageForwardScope&) = delete;
};

// The version counters of `tensors`, which change when a tensor is written to. Tensors made in
// inference mode have none.
std::vector<std::int64_t> versions_of(const Tensors& tensors) {
  std::vector<std::int64_t> versions;
  for (const torch::Tensor& tensor : tensors) {
    const bool counts = tensor.defined() && !tensor.is_inference();
    versions.push_back(counts ? static_cast<std::int64_t>(tensor._version()) : 0);
  }
  return versions;
}

// The outputs of a stage without their graphs.
StageMessage without_graphs(const Tensors& outputs) {
  StageMessage message;
  for (const torch::Tensor& output : outputs) {
    message.tensors.push_back(output.defined() ? output.detach() : output);
    message.requires_grad.push_back(output.defined() && output.requires_grad());
  }
  return message;
}

}  // namespace

Stage::Stage(int index, StageModule module, torch::Device device, bool recompute,
             TiedParameters* tied)
    : index_(index),
      module_(std::move(module)),
      device_(device),
      recompute_(recompute),
      tied_(tied) {}

void Stage::begin(const StepPlan& plan, LossOfOutputs loss) {
  require_on_device();
  plan_ = plan;
  loss_ = std::move(loss);
  drawn_.reset();
  if (plan.training) peak_activations_ = 0;
  clear();
}

// The inputs will be there.
void Stage::require_on_device() const {
  parallel::for_each_parameter(
      module(), [this](const std::string& name, const torch::Tensor& parameter) {
        if (parameter.device() == device_) return;
        throw ConfigError(lockstep::str(
            "Pipeline: parameter '", name, "' of stage ", index_, " is on ", parameter.device(),
            " and was on ", device_,
            " when the pipeline was constructed; construct another pipeline after moving a stage"));
      });
}

void Stage::clear() {
  in_flight_.clear();
  in_flight_.resize(static_cast<std::size_t>(plan_.micro_batches));
  activations_ = 0;
}

void refuse_pipelines_inside_stages() {
  if (!in_stage_forward) return;
  throw ConfigError(
      "a Pipeline was called inside a stage of another one; make the inner one's stages stages of "
      "the outer one, or call the inner one's modules without a pipeline");
}

Tensors Stage::run(int micro_batch, const Tensors& inputs, bool loss_has_graph) {
  const StageForwardScope here;
  const RandomScope random(device_, drawn_.value_or(Generators{.cpu = true, .device = true}),
                           micro_batch_seed(plan_.seed, index_, micro_batch));
  const ActivationMemory::Claim claim(plan_.training ? memory_ : nullptr, {index_, micro_batch});
  Tensors outputs = module_.forward(inputs);
  if (loss_) {
    const torch::AutoGradMode grad(loss_has_graph);
    torch::Tensor loss = loss_(outputs, micro_batch);
    if (!loss.defined() || loss.numel() != 1) {
      throw ConfigError("the criterion must return a tensor of one element");
    }
    outputs = {std::move(loss)};
  }
  random.check();
  if (!drawn_) drawn_ = random.drawn();
  return outputs;
}

StageMessage Stage::forward(int micro_batch, StageMessage inputs) {
  if (!plan_.training) {
    const torch::NoGradGuard no_grad;
    return {.tensors = run(micro_batch, inputs.tensors, /*loss_has_graph=*/false)};
  }
  peak_activations_ = std::max(peak_activations_, ++activations_);
  // The first stage's inputs are the batch, which is not counted.
  if (memory_ && counts_received_ && index_ > 0) {
    memory_->adopt({index_, micro_batch}, inputs.tensors);
  }
  StageMessage outputs = recompute_ ? forward_without_graph(micro_batch, std::move(inputs))
                                    : forward_with_graph(micro_batch, inputs);
  note_memory();
  return outputs;
}

void Stage::note_memory() const {
  if (memory_) memory_->note(index_);
}

// `sinks` gets one for each input, without a node if the input needs no gradient.
Tensors Stage::run_with_graph(int micro_batch, const StageMessage& inputs, bool loss_has_graph,
                              std::vector<GradientSink>& sinks) {
  const torch::AutoGradMode grad(true);
  const bool is_first = index_ == 0;
  const Tensors batch = is_first ? with_own_versions(inputs.tensors) : Tensors();
  Tensors tensors;
  sinks.assign(inputs.tensors.size(), {});
  for (std::size_t i = 0; i < inputs.tensors.size(); ++i) {
    const torch::Tensor& input = (is_first ? batch : inputs.tensors)[i];
    torch::Tensor& tensor = tensors.emplace_back(input.defined() ? input.detach() : input);
    const bool needs_gradient = i < inputs.requires_grad.size() && inputs.requires_grad[i];
    if (input.defined() && needs_gradient) sinks[i] = GradientSink::attach(tensor);
  }
  Tensors outputs = run(micro_batch, tensors, loss_has_graph);
  if (is_first) pass_changes_on(batch, inputs.tensors);
  return outputs;
}

StageMessage Stage::forward_with_graph(int micro_batch, const StageMessage& inputs) {
  std::vector<GradientSink> sinks;
  const Tensors outputs = run_with_graph(micro_batch, inputs, /*loss_has_graph=*/true, sinks);
  InFlight& held = in_flight(micro_batch);
  if (loss_) {
    if (!outputs[0].requires_grad()) {
      throw ConfigError("the loss depends on no parameter that requires a gradient");
    }
    held.loss_gradient = torch::ones_like(outputs[0]);
  }
  held.backward = StageBackward(outputs, std::move(sinks), tied_ ? tied_->of(index_) : Tensors());
  return without_graphs(outputs);
}

// Makes a graph and drops it, because some of LibTorch's modules compute without a graph by another
// kernel, with other rounding: the LSTM does. No graph is needed for the loss: a criterion is
// called with gradients only once for each micro-batch.
StageMessage Stage::forward_without_graph(int micro_batch, StageMessage inputs) {
  const std::vector<std::int64_t> versions = versions_of(inputs.tensors);
  std::vector<GradientSink> sinks;
  StageMessage message =
      without_graphs(run_with_graph(micro_batch, inputs, /*loss_has_graph=*/false, sinks));
  if (versions_of(inputs.tensors) != versions) {
    throw ConfigError(
        "the stage changes its inputs in place, so that recompute cannot run it again on what they "
        "were; let its first operation make a new tensor");
  }
  in_flight(micro_batch).inputs = std::move(inputs);
  return message;
}

void Stage::recompute(int micro_batch) {
  const StageMessage inputs = std::exchange(in_flight(micro_batch).inputs, {});
  const SavedBuffers buffers(module());
  try {
    forward_with_graph(micro_batch, inputs);
  } catch (...) {
    buffers.restore();
    throw;
  }
  buffers.restore();
  note_memory();
}

StageBackward& Stage::prepare_backward(int micro_batch, Tensors& gradients) {
  if (recompute_) recompute(micro_batch);
  InFlight& held = in_flight(micro_batch);
  if (loss_) gradients = {std::exchange(held.loss_gradient, torch::Tensor())};
  return held.backward;
}

Tensors Stage::backward(int micro_batch, Tensors gradients) {
  StageBackward& graph = prepare_backward(micro_batch, gradients);
  Tensors of_inputs = graph.backward(std::move(gradients));
  end_backward(micro_batch);
  return of_inputs;
}

Tensors Stage::backward_input(int micro_batch, Tensors gradients) {
  StageBackward& graph = prepare_backward(micro_batch, gradients);
  // Memory kept for the second part belongs to this stage.
  const ActivationMemory::Claim claim(memory_, {index_, micro_batch});
  if (memory_) memory_->adopt({index_, micro_batch}, gradients);
  Tensors of_inputs = graph.backward_input(std::move(gradients));
  if (memory_) memory_->give_away(of_inputs);
  note_memory();
  return of_inputs;
}

void Stage::backward_weight(int micro_batch) {
  in_flight(micro_batch).backward.backward_weight();
  end_backward(micro_batch);
}

void Stage::end_backward(int micro_batch) {
  {
    InFlight held = std::exchange(in_flight(micro_batch), {});
    --activations_;
    if (tied_ && !tied_->of(index_).empty()) {
      tied_->add(index_, micro_batch, held.backward.take_tied_gradients());
    }
  }
  if (memory_) memory_->end({index_, micro_batch});
}

}  // namespace lockstep::pipeline
