// Which calls follow train() and eval(), and which cannot.
#include <lockstep/program/graph/modes.h>

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/program/graph/operator_name.h>

namespace lockstep::testing_support {
namespace {

using program::Argument;
using program::call_text;
using program::counter_beside;
using program::counter_of;
using program::export_modes;
using program::fixed_modes;
using program::Graph;
using program::incremented_counter;
using program::mode_argument;
using program::NamedArgument;
using program::Node;
using program::None;
using program::operator_name;
using program::StateNames;
using program::stochastic_depth_calls;
using program::Subgraph;
using program::TensorName;

using NamedArguments = std::vector<NamedArgument>;

constexpr const char* kAttention = "torch.ops.aten.scaled_dot_product_attention.default";

Argument tensor_named(const std::string& name) { return {TensorName{name}}; }

Node node_of(const std::string& target, NamedArguments inputs, const std::string& output = "y") {
  return {.target = target, .inputs = std::move(inputs), .outputs = {tensor_named(output)}};
}

// "training was true", "dropout_p is a probability"; "none" if no argument depends on the mode.
std::string mode_text(const std::string& target, NamedArguments inputs) {
  const auto mode = mode_argument(node_of(target, std::move(inputs)));
  if (!mode) return "none";
  if (mode->is_probability) return std::string(mode->name) + " is a probability";
  return std::string(mode->name) + (mode->was_training ? " was true" : " was false");
}

TEST(OperatorName, IsThatOfTheDispatcher) {
  const struct {
    const char* target;
    const char* name;  // null: it is no operator
    const char* overload;
  } cases[] = {
      {"torch.ops.aten.add_.Tensor", "aten::add_", "Tensor"},
      {"torch.ops.aten.conv2d.default", "aten::conv2d", ""},
      {"torch.ops.higher_order.cond", "higher_order::cond", ""},
      {"_operator.mul", nullptr, nullptr},
      {"torch.ops.", nullptr, nullptr},
      {"torch.ops.aten", nullptr, nullptr},
      {"", nullptr, nullptr},
  };
  for (const auto& c : cases) {
    const auto name = operator_name(c.target);
    ASSERT_EQ(name.has_value(), c.name != nullptr) << c.target;
    if (!name) continue;
    EXPECT_EQ(name->name, c.name);
    EXPECT_EQ(name->overload, c.overload) << c.target;
  }
  EXPECT_EQ(call_text({.target = "torch.ops.aten.add.Tensor", .source = "net.py:3: y = x + 1"}),
            "aten::add at net.py:3: y = x + 1");
  EXPECT_EQ(call_text({.target = "os.system"}), "os.system");
}

TEST(Modes, AreThoseOfTheArgumentsThatDependOnThem) {
  const NamedArgument mean{"running_mean", tensor_named("mean")}, no_mean{"running_mean", {None{}}};
  const NamedArgument on{"training", {true}}, off{"training", {false}};
  const std::string norm = "torch.ops.aten.batch_norm.default";
  EXPECT_EQ(mode_text(norm, {mean, on}), "training was true");
  EXPECT_EQ(mode_text(norm, {mean, off}), "training was false");
  EXPECT_EQ(mode_text(norm, {no_mean, on}), "none") << "it has no statistics to use instead";
  EXPECT_EQ(mode_text("torch.ops.aten._native_batch_norm_legit_functional.default", {mean, on}),
            "training was true");
  EXPECT_EQ(mode_text("torch.ops.aten.dropout.default", {{"train", {true}}}), "train was true");
  EXPECT_EQ(mode_text("torch.ops.aten.rrelu.default", {}), "training was false")
      << "torch.export leaves defaults out";
  EXPECT_EQ(mode_text(kAttention, {{"dropout_p", {0.25}}}), "dropout_p is a probability");
  EXPECT_EQ(mode_text(kAttention, {{"dropout_p", {0.0}}}), "none");
  EXPECT_EQ(mode_text(kAttention, {}), "none");
  EXPECT_EQ(mode_text("torch.ops.aten.relu.default", {on}), "none");
}

std::vector<std::string> fixed_modes_of(const Graph& graph) {
  return fixed_modes(graph, export_modes(graph));
}

TEST(Modes, AreFixedWhereTheExportLostThem) {
  const auto texts = [](const Node& node) {
    Graph graph;
    graph.nodes.push_back(node);
    return fixed_modes_of(graph);
  };
  const std::vector<std::string> none;
  const std::vector<std::string> lost{"aten::scaled_dot_product_attention"};
  EXPECT_EQ(texts(node_of(kAttention, {})), lost);
  EXPECT_EQ(texts(node_of(kAttention, {{"dropout_p", {0.0}}})), lost);
  EXPECT_EQ(texts(node_of(kAttention, {{"dropout_p", {0.1}}})), none);
  const NamedArgument off{"training", {false}}, on{"training", {true}};
  const std::string norm = "torch.ops.aten.batch_norm.default";
  EXPECT_EQ(texts(node_of(norm, {off, {"momentum", {0.0}}})),
            std::vector<std::string>{"aten::batch_norm"})
      << "an average over all batches";
  EXPECT_EQ(texts(node_of(norm, {off, {"momentum", {0.1}}})), none);
  EXPECT_EQ(texts(node_of(norm, {on, {"momentum", {0.0}}})), none);
  EXPECT_EQ(texts(node_of("torch.ops.aten._native_batch_norm_legit_no_training.default", {})),
            std::vector<std::string>{"aten::_native_batch_norm_legit_no_training"});

  auto inner = std::make_shared<Graph>();
  inner->nodes.push_back(node_of(kAttention, {}));
  EXPECT_EQ(texts(node_of("torch.ops.higher_order.cond", {{"", {Subgraph{"graph", inner}}}})), lost)
      << "in a graph of the graph";
}

Node node_in(const std::string& path, const std::string& target, NamedArguments inputs) {
  Node node = node_of(target, std::move(inputs));
  node.module_path = path;
  return node;
}

// A call that shows the mode of the module `path`.
Node dropout_in(const std::string& path, bool training) {
  return node_in(path, "torch.ops.aten.dropout.default", {{"p", {0.0}}, {"train", {training}}});
}

// Attention without dropout is alike in both modes if that is its probability in training.
TEST(Modes, OfAttentionAreNotFixedInExportsOfTraining) {
  const auto count = [](const std::vector<Node>& others) {
    Graph graph;
    graph.nodes = others;
    graph.nodes.push_back(node_in("layers.1.attention", kAttention, {{"dropout_p", {0.0}}}));
    return fixed_modes_of(graph).size();
  };
  EXPECT_EQ(count({}), 1U) << "the mode of the export is unknown";
  EXPECT_EQ(count({dropout_in("layers.1.drop", true)}), 0U);
  EXPECT_EQ(count({dropout_in("layers.1.drop", false)}), 1U);
  EXPECT_EQ(count({dropout_in("layers.1.attention", true)}), 0U) << "the same module";
  EXPECT_EQ(count({dropout_in("", true)}), 0U) << "the whole model";
  EXPECT_EQ(count({dropout_in("head.drop", true)}), 0U) << "nothing nearer shows a mode";
  EXPECT_EQ(count({dropout_in("head.drop", true), dropout_in("head.end", false)}), 1U);
  EXPECT_EQ(count({dropout_in("head.drop", true), dropout_in("layers.1.drop", false)}), 1U)
      << "a frozen part";
  EXPECT_EQ(count({dropout_in("head.drop", false), dropout_in("layers.1.drop", true)}), 0U);
  EXPECT_EQ(count({dropout_in("layers.10.drop", false), dropout_in("layers.1-a.drop", false),
                   dropout_in("layers.1.drop", true)}),
            0U)
      << "other modules whose paths begin alike";
  EXPECT_EQ(count({node_in("layers.0", kAttention, {{"dropout_p", {0.1}}})}), 0U);

  auto inner = std::make_shared<Graph>();
  inner->nodes.push_back(dropout_in("layers.1.drop", true));
  EXPECT_EQ(count({node_of("torch.ops.higher_order.wrap", {{"", {Subgraph{"graph", inner}}}})}), 0U)
      << "a region shows the mode";
}

// These calls have their flag in both modes, so that they follow it.
TEST(Modes, OfCallsWithoutDropoutAreNotFixed) {
  const std::pair<const char*, const char*> cases[] = {
      {"dropout", "train"},
      {"dropout_", "train"},
      {"native_dropout", "train"},
      {"feature_dropout", "train"},
      {"alpha_dropout", "train"},
      {"feature_alpha_dropout", "train"},
      {"rrelu", "training"},
      {"lstm", "train"},
      {"gru", "train"},
      {"rnn_tanh", "train"},
      {"rnn_relu", "train"},
      {"instance_norm", "use_input_stats"},
      {"batch_norm", "training"},
  };
  for (const auto& [name, flag] : cases) {
    for (const bool training : {true, false}) {
      Graph graph;
      graph.nodes.push_back(
          node_of("torch.ops.aten." + std::string(name) + ".default",
                  {{"p", {0.0}}, {"dropout", {0.0}}, {"momentum", {0.1}}, {flag, {training}}}));
      EXPECT_TRUE(fixed_modes_of(graph).empty()) << name;
    }
  }
}

// A graph of x -> `before` -> a call of DropPath -> `after` -> output.
Graph graph_with_path(const std::vector<Node>& call) {
  Graph graph;
  graph.inputs = {tensor_named("x")};
  graph.nodes.push_back(
      node_of("torch.ops.aten.neg.default", {{"self", tensor_named("x")}}, "before"));
  for (Node node : call) {
    node.module_path = "path";
    node.module_class = "timm.layers.drop.DropPath";
    graph.nodes.push_back(std::move(node));
  }
  graph.nodes.push_back(
      node_of("torch.ops.aten.neg.default", {{"self", tensor_named("less")}}, "after"));
  graph.outputs = {tensor_named("after")};
  return graph;
}

TEST(Modes, SkipCallsOfStochasticDepth) {
  const Node mask =
      node_of("torch.ops.aten.bernoulli.p", {{"self", tensor_named("before")}}, "mask");
  const Node less =
      node_of("torch.ops.aten.mul.Tensor",
              {{"self", tensor_named("before")}, {"other", tensor_named("mask")}}, "less");
  auto calls = stochastic_depth_calls(graph_with_path({mask, less}));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].begin, 1U);
  EXPECT_EQ(calls[0].end, 3U);
  EXPECT_EQ(calls[0].input, "before");
  EXPECT_EQ(calls[0].output, "less");
  EXPECT_TRUE(fixed_modes_of(graph_with_path({mask, less})).empty());

  Graph of_training = graph_with_path({mask, less});
  of_training.nodes.push_back(node_of(kAttention, {}, "attention"));
  EXPECT_TRUE(fixed_modes_of(of_training).empty()) << "evaluation would leave the call out";

  Node of_two = less;
  of_two.inputs[0].argument = tensor_named("x");
  calls = stochastic_depth_calls(graph_with_path({mask, of_two}));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].output, "") << "two inputs: nothing can stand for the result";
  EXPECT_EQ(fixed_modes_of(graph_with_path({mask, of_two})),
            std::vector<std::string>{"aten::bernoulli"});

  Graph of_two_results = graph_with_path({mask, less});
  of_two_results.outputs.push_back(tensor_named("mask"));
  EXPECT_EQ(stochastic_depth_calls(of_two_results).at(0).output, "");

  Node twice = node_of("torch.ops.aten.neg.default", {{"self", tensor_named("before")}}, "less");
  EXPECT_TRUE(stochastic_depth_calls(graph_with_path({twice})).empty()) << "it draws no numbers";
}

TEST(Modes, KnowTheCountersOfBatches) {
  const StateNames states = {{"b_mean", "norm.running_mean"},
                             {"b_count", "norm.num_batches_tracked"},
                             {"b_steps", "steps"}};
  const auto add = [&](const char* target, const std::string& value, std::int64_t step) {
    return incremented_counter(node_of(target, {{"self", tensor_named(value)}, {"other", {step}}}),
                               states);
  };
  EXPECT_EQ(add("torch.ops.aten.add_.Tensor", "b_count", 1), "norm.num_batches_tracked");
  EXPECT_EQ(add("torch.ops.aten.add.Tensor", "b_count", 1), "norm.num_batches_tracked")
      << "after run_decompositions()";
  EXPECT_EQ(add("torch.ops.aten.add.Tensor", "b_count", 2), "");
  EXPECT_EQ(add("torch.ops.aten.add_.Tensor", "b_steps", 1), "");
  EXPECT_EQ(add("torch.ops.aten.mul.Tensor", "b_count", 1), "");
  EXPECT_EQ(counter_of(node_of("torch.ops.aten.batch_norm.default",
                               {{"running_mean", tensor_named("b_mean")}}),
                       states),
            "norm.num_batches_tracked");
  EXPECT_EQ(counter_beside("norm.running_mean"), "norm.num_batches_tracked");
  EXPECT_EQ(counter_beside("norm.running_var"), "");
  EXPECT_EQ(counter_of(
                node_of("torch.ops.aten.batch_norm.default", {{"running_mean", tensor_named("x")}}),
                states),
            "");
}

}  // namespace
}  // namespace lockstep::testing_support
