#include <lockstep/export/trace/trace.h>

#include <algorithm>
#include <set>

#include <torch/csrc/jit/ir/constants.h>

#include <lockstep/core/error.h>
#include <lockstep/export/trace/aliasing.h>
#include <lockstep/export/trace/compare_recordings.h>
#include <lockstep/export/trace/probes.h>
#include <lockstep/export/trace/rehearsal.h>
#include <lockstep/export/trace/same_results.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;

std::vector<std::int64_t> resolved_batch_dimensions(const Tensors& inputs,
                                                    const TraceOptions& options) {
  std::vector<std::int64_t> dimensions = options.batch_dimensions;
  if (dimensions.empty()) {
    for (const at::Tensor& input : inputs) dimensions.push_back(input.dim() == 0 ? -1 : 0);
  }
  if (dimensions.size() != inputs.size()) {
    throw ConfigError(str("export_onnx: batch_dimensions needs an entry for each of the ",
                          inputs.size(), " inputs, got ", dimensions.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!options.dynamic_batch) dimensions[i] = -1;
    if (dimensions[i] >= inputs[i].dim() || dimensions[i] < -1) {
      throw ConfigError(str("export_onnx: input ", i, " has ", inputs[i].dim(),
                            " dimensions, so that its batch cannot be dimension ", dimensions[i],
                            "; give -1 for an input without a batch"));
    }
  }
  return dimensions;
}

// The batch size on which all inputs agree; 0 if no input has a batch.
std::int64_t batch_of(const Tensors& inputs, const std::vector<std::int64_t>& dimensions) {
  std::int64_t batch = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (dimensions[i] < 0) continue;
    const std::int64_t size = inputs[i].size(dimensions[i]);
    if (size < 1 || (batch != 0 && size != batch)) {
      throw ConfigError(str("export_onnx: dimension ", dimensions[i], " of input ", i, " is ", size,
                            batch == 0 ? str(", expected at least one sample")
                                       : str(", but the batch of the inputs before is ", batch),
                            "; batch_dimensions says which dimension of each input is the batch"));
    }
    batch = size;
  }
  return batch;
}

std::string locations_in_words(const std::vector<BakedConstant>& baked,
                               const ModuleLocations& locations) {
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const BakedConstant& each : baked) {
    const std::string text = str(each.user->kind().toQualString(), " with ", each.text, ' ',
                                 locations.at(each.user).text());
    if (seen.insert(text).second) texts.push_back(text);
  }
  return join(texts, "; ");
}

// LibTorch's own modules read the batch size from their inputs: MultiheadAttention and
// LocalResponseNorm for their views, the recurrent layers and cells for their initial state.
bool is_in_attention(const ModuleLocation& location, const NamedParameters& parameters) {
  const auto has = [&](const std::string& name) {
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const auto& entry) { return entry.first == name; });
  };
  std::string module = location.module();
  constexpr std::string_view kProjection = "out_proj";
  if (module.ends_with(kProjection)) module.resize(module.size() - kProjection.size());
  if (module.ends_with('.')) module.pop_back();
  const std::string prefix = module.empty() ? "" : module + ".";
  return (has(prefix + "in_proj_weight") || has(prefix + "q_proj_weight")) &&
         has(prefix + "out_proj.weight");
}

// Operations that take the number as a size. The parameters do not show where attention ends, and
// the user's arithmetic after it is not part of attention.
bool takes_sizes(const Node& node) {
  static const std::set<std::string> kShapes = {"aten::view",   "aten::reshape", "aten::unflatten",
                                                "aten::expand", "aten::repeat",  "aten::zeros"};
  return kShapes.contains(node.kind().toQualString());
}

bool is_kind(const Node& node, const char* name) {
  return node.kind() == c10::Symbol::fromQualString(name);
}

// Whether an operation multiplies a state with the weights for it of a cell.
bool is_step_of_cell(const torch::jit::Use& use, const NamedParameters& parameters) {
  if (!is_kind(*use.user, "aten::linear") || use.offset != 0) return false;
  const auto inputs = use.user->owningGraph()->inputs();
  const std::size_t first = inputs.size() - parameters.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (inputs[first + i] == use.user->input(1)) return parameters[i].first.ends_with("weight_hh");
  }
  return false;
}

// Whether zeros are the state with which a recurrent layer or cell begins.
bool is_first_state(const Node& node, const NamedParameters& parameters) {
  static const std::set<std::string> kLayers = {"aten::lstm", "aten::gru", "aten::rnn_tanh",
                                                "aten::rnn_relu"};
  if (!is_kind(node, "aten::zeros")) return false;
  if (kLayers.contains(user_of(*node.output())->kind().toQualString())) return true;
  const auto& uses = node.output()->uses();
  return std::any_of(uses.begin(), uses.end(),
                     [&](const torch::jit::Use& use) { return is_step_of_cell(use, parameters); });
}

// Whether an operation pads what it gets for the 3D average that follows.
bool pads_for_an_average(const Node& node) {
  if (!is_kind(node, "aten::_pad_enum") || node.output()->uses().empty()) return false;
  return is_kind(*node.output()->uses().front().user, "aten::avg_pool3d");
}

// LocalResponseNorm averages squares over the channels of an image as the depth of a volume. It
// makes the volume by a view with the batch as a number, and takes it apart by another.
bool is_in_local_response_norm(const Node& view) {
  if (!is_kind(view, "aten::view")) return false;
  const auto& uses = view.output()->uses();
  if (!uses.empty() && pads_for_an_average(*uses.front().user)) return true;
  const Node& squeeze = *view.input(0)->node();
  if (!is_kind(squeeze, "aten::squeeze")) return false;
  const Node& average = *squeeze.input(0)->node();
  return is_kind(average, "aten::avg_pool3d") && pads_for_an_average(*average.input(0)->node());
}

void accept_or_refuse(const std::vector<BakedConstant>& baked, const NamedParameters& parameters,
                      bool follow_batch, Trace& trace) {
  std::vector<BakedConstant> refused;
  for (const BakedConstant& each : baked) {
    const bool may =
        follow_batch || is_first_state(*each.user, parameters) ||
        is_in_local_response_norm(*each.user) ||
        (takes_sizes(*each.user) && is_in_attention(trace.locations.at(each.user), parameters));
    if (may && each.extent) {
      trace.following[each.value] = *each.extent;
    } else {
      refused.push_back(each);
    }
  }
  if (refused.empty()) return;
  throw ConfigError(
      str("export_onnx: forward() bakes the batch into constants that a trace cannot follow: ",
          locations_in_words(refused, trace.locations),
          "; write sizes that do not name the batch, such as x.flatten(1) in place of "
          "x.view({x.size(0), -1}), ",
          follow_batch ? "" : "or set follow_batch, ", "or export with dynamic_batch = false"));
}

constexpr const char* kOtherValues = "other values";

bool has_nan(const Tensors& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [](const at::Tensor& output) {
    return output.defined() && output.is_floating_point() && output.isnan().any().item<bool>();
  });
}

// forward() may refuse some values by a check of its own, or because they are no indices, or it may
// compute NaN, as from a mask that hides everything: the first values count that it takes.
Recording record_other_values(const Forward& forward, const Tensors& inputs, int number,
                              const NamedParameters& parameters, const Recording& example,
                              Tensors& given) {
  const std::vector<Tensors> proposals = with_other_values(inputs, number);
  for (std::size_t i = 0; i + 1 < proposals.size(); ++i) {
    try {
      given = proposals[i];
      Recording recording = record(forward, given, parameters);
      if (has_nan(recording.outputs) && !has_nan(example.outputs)) continue;
      return recording;
    } catch (const CaughtException&) {
      throw;
    } catch (const std::exception&) {  // the next proposal is closer to the example
    }
  }
  given = proposals.back();
  return record(forward, given, parameters, kOtherValues,
                "; it must accept inputs whose values differ from the example's");
}

// LibTorch counts operations such as rrelu() and alpha_dropout() among the random ones, although
// they are random in training only, and attention, which is so only with dropout.
bool is_random(const Node& node) {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr || !node.isNondeterministic()) return false;
  for (const char* const name : {"train", "training", "dropout_p"}) {
    const auto index = schema->argumentIndexWithName(name);
    if (!index) continue;
    const auto given = torch::jit::toIValue(node.input(static_cast<std::size_t>(*index)));
    return !given || given->toScalar().toDouble() != 0;
  }
  return true;
}

bool is_random(const torch::jit::Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node* node) { return is_random(*node); });
}

void require_same_in_a_second_call(const Forward& forward, const Tensors& inputs,
                                   const NamedParameters& parameters, const Trace& trace) {
  Recording second;
  try {
    second = record(forward, inputs, parameters);
  } catch (const std::exception&) {
    return;  // the difference between the first runs says more
  }
  require_same_operations(trace.recording, second, trace.locations,
                          "the example in a second call (if forward() keeps something from the "
                          "first call, such as a mask, call it once before the export)");
}

std::vector<Run> runs_with_other_values(const Forward& forward, const Tensors& inputs,
                                        const NamedParameters& parameters, const Trace& trace) {
  constexpr int kRuns = 2;
  std::vector<Run> runs;
  for (int number = 0; number < kRuns; ++number) {
    Run& run = runs.emplace_back(Run{.condition = kOtherValues});
    run.recording =
        record_other_values(forward, inputs, number, parameters, trace.recording, run.inputs);
    try {
      require_same_operations(trace.recording, run.recording, trace.locations, run.condition);
    } catch (const ConfigError&) {
      require_same_in_a_second_call(forward, inputs, parameters, trace);
      throw;
    }
    const auto baked = differing_constants(trace.recording, {&run.recording});
    if (!baked.empty()) {
      throw ConfigError(str(
          "export_onnx: forward() computes constants from the values of its inputs, which a trace "
          "bakes in: ",
          locations_in_words(baked, trace.locations),
          "; keep them tensors (no item(), data_ptr() or tensors of another library)"));
    }
  }
  return runs;
}

std::vector<Run> runs_with_other_batches(const Forward& forward, const Tensors& inputs,
                                         const NamedParameters& parameters, const Trace& trace) {
  std::vector<Run> runs;
  if (trace.batch == 0) return runs;
  // Many branches on a size are on a single sample.
  std::vector<std::int64_t> batches = {trace.batch + 1, trace.batch + 3};
  if (trace.batch > 1) batches.push_back(1);
  for (const std::int64_t batch : batches) {
    Run& run = runs.emplace_back(Run{.condition = str("a batch of ", batch),
                                     .inputs = with_batch(inputs, trace.batch_dimensions, batch)});
    run.recording = record(forward, run.inputs, parameters, run.condition, kForSomeBatches);
    require_same_operations(trace.recording, run.recording, trace.locations, "another batch size");
  }
  return runs;
}

// forward() may act unseen by the tracer in any of the runs, so all are checked. They are repeated
// after the last run: a tensor of the module that forward() fills is a constant in all recordings,
// and holds what the last run has written.
void require_results_of_all_runs(const Forward& forward, const Tensors& inputs,
                                 const NamedParameters& parameters, const std::vector<Run>& values,
                                 const std::vector<Run>& batches, const Trace& trace) {
  const Run first = {.condition = "the example", .inputs = inputs, .recording = trace.recording};
  require_same_results(trace.recording, first, forward, parameters);
  for (const Run& run : values) require_same_results(trace.recording, run, forward, parameters);
  // If constants follow the batch, only the run's own recording has the constants for its batch.
  for (const Run& run : batches) require_same_results(run.recording, run, forward, parameters);
}

// A branch that no run took leaves no other trace.
void require_no_reads(const Recording& recording) {
  std::vector<std::string> texts;
  for (const std::string& parameter : recording.reads) {
    const std::string text = ModuleLocation{.parameter = parameter}.text();
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  if (texts.empty()) return;
  throw ConfigError(
      str("export_onnx: forward() reads a value out of a tensor (item()) ", join(texts, "; "),
          "; the runs showed no difference, but a branch on it that other inputs take "
          "would be missing in the model: use torch::where(), or set allow_reads"));
}

}  // namespace

Trace trace_module(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters,
                   const TraceOptions& options) {
  Trace trace;
  trace.batch_dimensions = resolved_batch_dimensions(inputs, options);
  trace.batch = batch_of(inputs, trace.batch_dimensions);
  trace.recording = record(forward, inputs, parameters);
  trace.locations = module_locations_of(*trace.recording.graph, inputs.size(), parameters);
  require_plain_writes(*trace.recording.graph, inputs.size(), parameters, trace.locations);

  const auto values = runs_with_other_values(forward, inputs, parameters, trace);
  const auto batches = runs_with_other_batches(forward, inputs, parameters, trace);
  std::vector<BatchProbe> probes;
  for (const Run& run : batches) {
    probes.push_back(
        {.batch = batch_of(run.inputs, trace.batch_dimensions), .recording = &run.recording});
  }
  if (!probes.empty()) {
    accept_or_refuse(following_constants(trace.recording, trace.batch, probes), parameters,
                     options.follow_batch, trace);
  }
  if (!options.allow_reads) require_no_reads(trace.recording);
  std::vector<const Recording*> same_sizes;
  for (const Run& run : values) same_sizes.push_back(&run.recording);
  trace.sizes = traced_sizes(trace.recording, same_sizes, trace.batch, probes, trace.locations);
  compare_arguments_of_calls(trace.recording, trace.batch, probes);
  trace.sizes_of_calls = sizes_of_calls(trace.recording, trace.batch, probes);
  // Random operations have no lowering: the translation reports them.
  if (is_random(*trace.recording.graph)) return trace;
  require_results_of_all_runs(forward, inputs, parameters, values, batches, trace);
  rehearse(forward, parameters, trace, options.allow_reads);
  return trace;
}

}  // namespace lockstep::onnx
