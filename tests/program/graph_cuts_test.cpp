// Places for cuts and the graphs of stages.
#include <lockstep/program/graph_cuts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/program/graph/read_graph.h>
#include <lockstep/program/graph/references.h>
#include <tests/formats/fuzz/harness.h>
#include <tests/program/pt2_bytes.h>

namespace lockstep::testing_support {
namespace {

using program::Argument;
using program::ArgumentList;
using program::Cut;
using program::cuts_of;
using program::ExportedGraph;
using program::InputSpec;
using program::NamedArgument;
using program::Node;
using program::NumberName;
using program::OutputSpec;
using program::stages_of;
using program::TensorName;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A graph of float32[s0, 6] tensors.
struct CutGraph {
  ExportedGraph program{};

  std::string value(const std::string& name) {
    program.graph.tensors[name] = {.dtype = {7}, .sizes = {{4, "Symbol('s0')"}, {6, ""}}};
    return name;
  }
  std::string input(const std::string& name, InputSpec::Kind kind = InputSpec::Kind::kUser) {
    const Argument argument{TensorName{value(name)}};
    program.graph.inputs.push_back(argument);
    program.inputs.push_back({.kind = kind, .argument = argument, .target = name});
    return name;
  }
  void add(const std::string& target, std::vector<NamedArgument> inputs, Argument output) {
    program.graph.nodes.push_back(
        {.target = "torch.ops.aten." + target, .inputs = std::move(inputs), .outputs = {output}});
  }
  std::string call(const std::string& target, std::vector<NamedArgument> inputs) {
    const std::string name = value("v" + std::to_string(program.graph.nodes.size()));
    add(target, std::move(inputs), {TensorName{name}});
    return name;
  }
  std::string number(const std::string& target, std::vector<NamedArgument> inputs) {
    const std::string name = "n" + std::to_string(program.graph.nodes.size());
    add(target, std::move(inputs), {NumberName{name}});
    return name;
  }
  void output(const std::string& name) {
    const Argument argument{TensorName{name}};
    program.graph.outputs.push_back(argument);
    program.outputs.push_back({.argument = argument});
  }
};

NamedArgument of(const std::string& name, const std::string& value) {
  return {name, {TensorName{value}}};
}

// The places of v0 = x + x; v1 = target(v0); v1.relu_(); v3 = -v0.
std::vector<Cut> cuts_around_change(const std::string& target, const std::string& argument,
                                    bool is_list) {
  CutGraph graph;
  const auto x = graph.input("x");
  const auto sum = graph.call("add.Tensor", {of("self", x), of("other", x)});
  const Argument list{ArgumentList{{{TensorName{sum}}}}};
  const NamedArgument given = is_list ? NamedArgument{argument, list} : of(argument, sum);
  const auto other = graph.value("v1");
  const bool returns_list = is_list && target != "einsum.default";
  graph.add(
      target, {given},
      returns_list ? Argument{ArgumentList{{{TensorName{other}}}}} : Argument{TensorName{other}});
  graph.call("relu_.default", {of("self", other)});
  graph.output(graph.call("neg.default", {of("self", sum)}));
  return cuts_of(graph.program);
}

// In a stage of its own, the change would not reach the value that it must reach.
TEST(GraphCuts, KeepAChangeWithAllThatMayShareItsMemory) {
  const struct {
    const char* target;
    const char* argument;
    bool is_list = false;
  } cases[] = {
      {"view.default", "self"},
      {"contiguous.default", "self"},
      {"reshape.default", "self"},
      {"flatten.using_ints", "self"},
      {"to.dtype", "self"},
      {"expand_as.default", "self"},
      {"squeeze.default", "self"},
      {"resolve_conj.default", "self"},
      // Their schemas do not say that they may return their input.
      {"type_as.default", "self"},
      {"atleast_1d.default", "self"},
      {"atleast_2d.default", "self"},
      {"atleast_3d.default", "self"},
      {"dropout.default", "input"},
      {"feature_dropout.default", "input"},
      {"pad.default", "self"},
      {"_unsafe_view.default", "self"},
      {"unsafe_split.Tensor", "self"},
      {"einsum.default", "tensors", true},
      {"broadcast_tensors.default", "tensors", true},
      {"meshgrid.default", "tensors", true},
  };
  for (const auto& c : cases) {
    const auto cuts = cuts_around_change(c.target, c.argument, c.is_list);
    ASSERT_EQ(cuts.size(), 5U);
    EXPECT_THAT(cuts[1].obstacle, HasSubstr("is changed in place after it")) << c.target;
    EXPECT_THAT(cuts[2].obstacle, HasSubstr("is changed in place after it")) << c.target;
    EXPECT_THAT(cuts[3].obstacle, IsEmpty()) << c.target;
  }
}

TEST(GraphCuts, AreFreeBeforeNewTensors) {
  const std::pair<const char*, const char*> cases[] = {
      {"neg.default", "self"},     {"linear.default", "input"},     {"conv2d.default", "input"},
      {"conv2d.padding", "input"}, {"batch_norm.default", "input"}, {"layer_norm.default", "input"},
      {"softmax.int", "self"},     {"max_pool2d.default", "self"},  {"matmul.default", "self"},
  };
  for (const auto& [target, argument] : cases) {
    const auto cuts = cuts_around_change(target, argument, false);
    ASSERT_EQ(cuts.size(), 5U);
    EXPECT_THAT(cuts[1].obstacle, IsEmpty()) << target;
    EXPECT_THAT(cuts[2].obstacle, HasSubstr("'v1' is changed in place after it")) << target;
  }
}

// The stage that has the argument is not the one that makes what is written to it.
TEST(GraphCuts, AreNowhereInAProgramThatWritesToItsArgument) {
  CutGraph graph;
  const auto x = graph.input("x");
  const auto sum = graph.call("add.Tensor", {of("self", x), of("other", x)});
  graph.output(graph.call("neg.default", {of("self", sum)}));
  EXPECT_EQ(program::changed_argument(graph.program), nullptr);
  EXPECT_THAT(cuts_of(graph.program)[1].obstacle, IsEmpty());
  graph.output(sum);
  graph.program.outputs.back().kind = OutputSpec::Kind::kUserMutation;
  graph.program.outputs.back().target = x;
  ASSERT_NE(program::changed_argument(graph.program), nullptr);
  EXPECT_EQ(*program::changed_argument(graph.program), "x");
  for (const Cut& cut : cuts_of(graph.program)) {
    EXPECT_EQ(cut.obstacle, "the program changes its argument 'x'");
  }
}

// A damaged file may claim any size.
TEST(GraphCuts, CountBytesWithoutOverflow) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  CutGraph graph;
  const auto x = graph.input("x");
  const auto a = graph.call("neg.default", {of("self", x)});
  const auto b = graph.call("abs.default", {of("self", x)});
  graph.output(graph.call("add.Tensor", {of("self", a), of("other", b)}));
  const auto bytes_with = [&](std::int64_t first, std::int64_t second) {
    for (const std::string& name : {a, b}) {
      graph.program.graph.tensors[name].sizes = {{first, ""}, {second, ""}};
    }
    return program::bytes_of(graph.program.graph, a);
  };
  EXPECT_EQ(bytes_with(2, 3), 24);
  EXPECT_EQ(cuts_of(graph.program)[2].bytes, 48);
  EXPECT_EQ(bytes_with(largest, 2), largest);
  EXPECT_EQ(cuts_of(graph.program)[2].bytes, largest);
  EXPECT_EQ(bytes_with(std::int64_t{1} << 61, 1), largest);
  EXPECT_EQ(bytes_with(std::int64_t{1} << 60, 1), std::int64_t{1} << 62);
  EXPECT_EQ(cuts_of(graph.program)[2].bytes, largest) << "of two tensors";
  EXPECT_EQ(bytes_with(largest, 0), 0);
  EXPECT_EQ(bytes_with(-1, 2), 0);
}

TEST(GraphCuts, HaveWhatCrosses) {
  CutGraph graph;
  const auto w = graph.input("w", InputSpec::Kind::kParameter);
  const auto x = graph.input("x");
  const auto first = graph.call("add.Tensor", {of("self", x), of("other", w)});
  const auto second = graph.call("neg.default", {of("self", first)});
  graph.output(graph.call("add.Tensor", {of("self", second), of("other", first)}));
  const auto cuts = cuts_of(graph.program);
  ASSERT_EQ(cuts.size(), 4U);
  EXPECT_EQ(cuts[0].obstacle, "a stage must have nodes");
  EXPECT_EQ(cuts[3].obstacle, "a stage must have nodes");
  EXPECT_THAT(cuts[1].crossing, ElementsAre("v0"));
  EXPECT_THAT(cuts[2].crossing, ElementsAre("v0", "v1"));
  EXPECT_EQ(cuts[2].bytes, 2 * 4 * 4 * 6);
}

TEST(GraphCuts, KnowWhichNumbersCanBeComputedAgain) {
  CutGraph graph;
  const auto x = graph.input("x");
  const auto rows = graph.number("sym_size.int", {of("self", x), {"dim", {std::int64_t{0}}}});
  const auto y = graph.call("neg.default", {of("self", x)});
  const auto wide = graph.call("mul.Tensor", {of("self", y), {"other", {NumberName{rows}}}});
  const auto item = graph.number("item.default", {of("self", wide)});
  const auto z = graph.call("neg.default", {of("self", wide)});
  graph.output(graph.call("mul.Tensor", {of("self", z), {"other", {NumberName{item}}}}));
  const auto cuts = cuts_of(graph.program);
  ASSERT_EQ(cuts.size(), 7U);
  EXPECT_EQ(cuts[2].obstacle, "") << "y has a size of s0";
  EXPECT_EQ(cuts[4].obstacle, "the number 'n3' is used after it");
  const auto stages = stages_of(graph.program, cuts, {2});
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[1].graph.nodes.front().target, "torch.ops.aten.sym_size.int");
  EXPECT_EQ(std::get<TensorName>(stages[1].graph.nodes.front().inputs.front().argument.value).name,
            y);
}

// Python reads the buffer before it is written, even where the value has been made before.
TEST(GraphCuts, KeepABufferWithAWriteThatComesBeforeItsUse) {
  CutGraph graph;
  const auto state = graph.input("state", InputSpec::Kind::kBuffer);
  const auto x = graph.input("x");
  const auto next = graph.call("neg.default", {of("self", x)});
  const auto y = graph.call("neg.default", {of("self", next)});
  const auto z = graph.call("add.Tensor", {of("self", y), of("other", state)});
  graph.output(graph.call("neg.default", {of("self", z)}));
  const Argument written{TensorName{next}};
  graph.program.graph.outputs.push_back(written);
  graph.program.outputs.push_back(
      {.kind = OutputSpec::Kind::kMutation, .argument = written, .target = "state"});
  const auto cuts = cuts_of(graph.program);
  ASSERT_EQ(cuts.size(), 5U);
  EXPECT_EQ(cuts[1].obstacle, "'state' is changed in place after it");
  EXPECT_EQ(cuts[2].obstacle, "'state' is changed in place after it");
  EXPECT_EQ(cuts[3].obstacle, "");
}

// Places at which stages may begin, chosen at random.
std::vector<std::size_t> random_begins(const std::vector<Cut>& cuts, PhiloxStream& random) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i].obstacle.empty() && random.below(3) == 0) begins.push_back(i);
  }
  return begins;
}

// The nodes of `stages` other than those of sizes, in order, by their first output.
std::vector<std::string> made_in(const std::vector<ExportedGraph>& stages) {
  std::vector<std::string> names;
  for (const ExportedGraph& stage : stages) {
    for (const Node& node : stage.graph.nodes) {
      const auto* name = std::get_if<TensorName>(&node.outputs.front().value);
      if (name != nullptr) names.push_back(name->name);
    }
  }
  return names;
}

CutGraph random_graph(PhiloxStream& random) {
  CutGraph graph;
  std::vector<std::string> tensors = {graph.input("w", InputSpec::Kind::kParameter),
                                      graph.input("state", InputSpec::Kind::kBuffer),
                                      graph.input("x"), graph.input("y")};
  std::vector<std::string> numbers;
  const auto any = [&](const std::vector<std::string>& names) {
    return names[random.below(static_cast<std::uint32_t>(names.size()))];
  };
  const auto number_argument = [&]() -> Argument {
    if (numbers.empty()) return {std::int64_t{3}};
    return {NumberName{any(numbers)}};
  };
  const std::uint32_t count = 3 + random.below(40);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string a = any(tensors), b = any(tensors);
    switch (random.below(8)) {
      case 0:
        numbers.push_back(graph.number("sym_size.int",
                                       {of("self", a), {"dim", {std::int64_t{random.below(2)}}}}));
        break;
      case 1: {
        const Argument factor = number_argument();
        numbers.push_back(graph.number("unused", {{"a", factor}, {"b", number_argument()}}));
        graph.program.graph.nodes.back().target = "_operator.mul";
        break;
      }
      case 2:
        tensors.push_back(graph.call("mul.Tensor", {of("self", a), {"other", number_argument()}}));
        break;
      case 3:
        tensors.push_back(graph.call("relu_.default", {of("self", a)}));
        break;
      case 4:
        tensors.push_back(graph.call("type_as.default", {of("self", a), of("other", b)}));
        break;
      case 5:
        if (random.below(6) == 0) numbers.push_back(graph.number("item.default", {of("self", a)}));
        break;
      default:
        tensors.push_back(graph.call("add.Tensor", {of("self", a), of("other", b)}));
    }
  }
  graph.output(tensors.back());
  graph.output(any(tensors));
  const Argument state{TensorName{any(tensors)}};
  graph.program.graph.outputs.push_back(state);
  graph.program.outputs.push_back(
      {.kind = OutputSpec::Kind::kMutation, .argument = state, .target = "state"});
  return graph;
}

TEST(GraphCuts, OfRandomGraphsMakeStagesThatDefineWhatTheyUse) {
  std::size_t cut_graphs = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    PhiloxStream random(1, 0, i);
    const CutGraph graph = random_graph(random);
    const auto cuts = cuts_of(graph.program);
    ASSERT_EQ(cuts.size(), graph.program.graph.nodes.size() + 1);
    const auto begins = random_begins(cuts, random);
    cut_graphs += begins.empty() ? 0 : 1;
    const auto stages = stages_of(graph.program, cuts, begins);
    ASSERT_EQ(stages.size(), begins.size() + 1);
    for (const ExportedGraph& stage : stages) {
      ASSERT_NO_THROW(program::check_references(stage, "a stage")) << i;
    }
    EXPECT_EQ(made_in(stages), made_in({graph.program})) << i;
    for (std::size_t stage = 1; stage < stages.size(); ++stage) {
      EXPECT_EQ(stages[stage].argument_names, cuts[begins[stage - 1]].crossing) << i;
    }
  }
  EXPECT_GT(cut_graphs, 50U);
}

// A file may describe tensors wrongly, or call operators with other arguments than they have.
TEST(GraphCuts, OfDamagedGraphsAreMade) {
  std::size_t accepted = 0;
  for (const nlohmann::json& model : {small_model(), large_model()}) {
    const std::string text = model.dump();
    for (std::uint64_t i = 0; i < 400; ++i) {
      PhiloxStream random(2, 0, i);
      ExportedGraph program;
      const std::string mutated = mutate(text, random);
      if (!accepts([&] { program = program::read_graph(mutated, "fuzz"); })) continue;
      ++accepted;
      std::vector<Cut> cuts;
      ASSERT_NO_THROW(cuts = cuts_of(program)) << i;
      ASSERT_NO_THROW(stages_of(program, cuts, random_begins(cuts, random))) << i;
    }
  }
  EXPECT_GT(accepted, 5U);
}

}  // namespace
}  // namespace lockstep::testing_support
