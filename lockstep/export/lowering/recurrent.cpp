// LSTM, GRU and plain recurrent layers, each as one ONNX node.
#include <string_view>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// The differences between the kinds. `gates` lists ONNX's gates as indices of LibTorch's.
struct RecurrentKind {
  const char* onnx;
  std::vector<std::int64_t> gates;
  std::size_t states = 1;  ///< hidden, or hidden and cell
};

// lstm(x, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first)
struct RecurrentArguments {
  std::vector<const torch::jit::Value*> parameters;
  bool has_biases = true;
  std::int64_t layers = 1;
  std::int64_t directions = 1;
  bool batch_first = false;
};

RecurrentArguments recurrent_arguments(const RecordedOperation& op) {
  const torch::jit::Node& list = *op.node().input(2)->node();
  if (list.kind() != c10::prim::ListConstruct) op.reject("a packed sequence");
  if (op.flag(6) && op.number(5) != 0) op.reject("dropout is on");
  RecurrentArguments arguments{.has_biases = op.flag(3),
                               .layers = op.integer(4),
                               .directions = op.flag(7) ? 2 : 1,
                               .batch_first = op.flag(8)};
  arguments.parameters.assign(list.inputs().begin(), list.inputs().end());
  const std::size_t each = arguments.has_biases ? 4 : 2;
  const auto expected = static_cast<std::size_t>(arguments.layers * arguments.directions) * each;
  if (arguments.parameters.size() != expected) op.reject("projections (proj_size)");
  return arguments;
}

// The rows of a weight or bias, reordered gate by gate to ONNX's order.
at::Tensor in_onnx_order(const at::Tensor& rows, const std::vector<std::int64_t>& gates) {
  const auto parts = rows.chunk(static_cast<std::int64_t>(gates.size()), 0);
  std::vector<at::Tensor> ordered;
  for (const std::int64_t gate : gates) ordered.push_back(parts[static_cast<std::size_t>(gate)]);
  return at::cat(ordered, 0);
}

// W, R and B of one layer, with the directions as the first dimension.
Names layer_weights(RecordedOperation& op, const RecurrentKind& kind,
                    const RecurrentArguments& arguments, std::int64_t layer) {
  const std::size_t each = arguments.has_biases ? 4 : 2;
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> hidden;
  std::vector<at::Tensor> biases;
  const auto first = static_cast<std::size_t>(layer * arguments.directions) * each;
  const auto parameter = [&](std::size_t i) {
    const Operand* const operand = op.operand(arguments.parameters[i]);
    if (operand == nullptr || !operand->constant.defined()) op.reject("weights that are computed");
    return operand->constant;
  };
  for (std::size_t d = 0; d < static_cast<std::size_t>(arguments.directions); ++d) {
    const std::size_t at = first + d * each;
    input.push_back(in_onnx_order(parameter(at), kind.gates));
    hidden.push_back(in_onnx_order(parameter(at + 1), kind.gates));
    if (!arguments.has_biases) continue;
    biases.push_back(at::cat({in_onnx_order(parameter(at + 2), kind.gates),
                              in_onnx_order(parameter(at + 3), kind.gates)}));
  }
  const auto wish = [&](std::size_t i) {
    return op.operand(arguments.parameters[first + i])->wish;
  };
  Names names = {op.graph().constant(at::stack(input), wish(0)),
                 op.graph().constant(at::stack(hidden), wish(1))};
  names.push_back(arguments.has_biases ? op.graph().constant(at::stack(biases), wish(2)) : "");
  return names;
}

// Names of the initial states of all layers; empty if they are zeros, ONNX's default.
Names first_states(RecordedOperation& op, const RecurrentKind& kind) {
  const torch::jit::Value* const argument = op.node().input(1);
  std::vector<const torch::jit::Value*> states = {argument};
  if (argument->node()->kind() == c10::prim::ListConstruct) {
    states.assign(argument->node()->inputs().begin(), argument->node()->inputs().end());
  }
  LOCKSTEP_CHECK(states.size() == kind.states, kind.onnx, " with ", states.size(), " states");
  Names names;
  for (const torch::jit::Value* state : states) {
    const std::string_view source = state->node()->kind().toQualString();
    names.push_back(source == "aten::zeros" ? std::string() : op.value(state));
  }
  return names;
}

// [sequence, directions, batch, hidden] to [sequence, batch, directions * hidden]
std::string merged_directions(RecordedOperation& op, const std::string& y, Extents sequence,
                              std::int64_t directions, std::int64_t hidden) {
  if (directions == 1) return op.squeeze(y, {1});
  sequence[2] = static_extent(directions * hidden);
  return op.reshape(op.transpose(y, {0, 2, 1, 3}), sequence);
}

void emit_recurrent(RecordedOperation& op, const RecurrentKind& kind, Attributes attributes) {
  if (op.rank(0) != 3) op.reject("an input without a batch dimension");
  const RecurrentArguments arguments = recurrent_arguments(op);
  const Extents& last = op.result_sizes(1);  // [layers * directions, batch, hidden]
  const std::int64_t hidden = op.fixed(last.at(2), "the hidden size");
  attributes.emplace_back("hidden_size", hidden);
  attributes.emplace_back("direction", arguments.directions == 2 ? "bidirectional" : "forward");
  std::string x = op.tensor(0);
  if (arguments.batch_first) x = op.transpose(x, {1, 0, 2});
  Extents sequence = op.sizes(0);
  if (arguments.batch_first) std::swap(sequence[0], sequence[1]);
  const Names states = first_states(op, kind);
  std::vector<Names> last_states(kind.states);
  for (std::int64_t layer = 0; layer < arguments.layers; ++layer) {
    Names inputs = {x};
    for (const std::string& name : layer_weights(op, kind, arguments, layer))
      inputs.push_back(name);
    inputs.emplace_back();  // no sequence lengths: all sequences are complete
    for (const std::string& state : states) {
      const std::int64_t begin = layer * arguments.directions;
      const bool whole = arguments.layers == 1 || state.empty();
      inputs.push_back(whole ? state : op.slice(state, 0, begin, begin + arguments.directions));
    }
    const Names outputs = op.graph().add(kind.onnx, inputs, attributes, 1 + kind.states);
    x = merged_directions(op, outputs[0], sequence, arguments.directions, hidden);
    for (std::size_t s = 0; s < kind.states; ++s) last_states[s].push_back(outputs[1 + s]);
  }
  op.bind(arguments.batch_first ? op.transpose(x, {1, 0, 2}) : x, 0);
  for (std::size_t s = 0; s < kind.states; ++s) {
    if (!op.is_used(1 + s)) continue;
    const Names& each = last_states[s];
    op.bind(each.size() == 1 ? each[0] : op.add("Concat", each, {{"axis", 0}}), 1 + s);
  }
}

// LibTorch's gates are input, forget, cell, output; ONNX's are input, output, forget, cell.
void lower_lstm(RecordedOperation& op, const Operator&) {
  emit_recurrent(op, {.onnx = "LSTM", .gates = {0, 3, 1, 2}, .states = 2}, {});
}

// LibTorch's gates are reset, update, new; ONNX's are update, reset, new. LibTorch applies the
// reset gate after the product with the hidden state.
void lower_gru(RecordedOperation& op, const Operator&) {
  emit_recurrent(op, {.onnx = "GRU", .gates = {1, 0, 2}}, {{"linear_before_reset", 1}});
}

void lower_rnn_tanh(RecordedOperation& op, const Operator&) {
  emit_recurrent(op, {.onnx = "RNN", .gates = {0}}, {});
}

void lower_rnn_relu(RecordedOperation& op, const Operator&) {
  const std::vector<std::string> activations(op.flag(7) ? 2 : 1, "Relu");
  emit_recurrent(op, {.onnx = "RNN", .gates = {0}}, {{"activations", activations}});
}

constexpr Operator kRecurrent[] = {
    {"gru", lower_gru},
    {"lstm", lower_lstm},
    {"rnn_relu", lower_rnn_relu},
    {"rnn_tanh", lower_rnn_tanh},
};

}  // namespace

Family recurrent_operators() { return kRecurrent; }

}  // namespace lockstep::onnx
