// What a drawing of an exported program shows.
#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/cli/exported/program_drawings.h>
#include <lockstep/core/error.h>
#include <tests/support/well_formed.h>

namespace lockstep::cli {
namespace {

using program::InputSpec;
using program::TensorName;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using BoxKind = ProgramBox::Kind;

constexpr program::ScalarTypeCode kFloat32 = {7};

// A program of which a test makes one call after the other.
class DrawnNet {
 public:
  DrawnNet() {
    program::Graph& graph = file_.program.graph;
    graph.module_classes = {{"", "net.Net"},
                            {"stem", "torch.nn.modules.conv.Conv2d"},
                            {"body", "torch.nn.modules.container.Sequential"},
                            {"body.0", "net.Block"},
                            {"body.0.conv", "torch.nn.modules.conv.Conv2d"},
                            {"body.1", "net.Block"}};
    file_.program.arguments = {.kind = program::Structure::Kind::kTuple};
    file_.program.arguments.children = {{.kind = program::Structure::Kind::kTuple}};
    file_.program.arguments.children[0].children = {{}};
    file_.program.argument_names = {"images"};
    describe("x", 3);
    graph.inputs.push_back({TensorName{"x"}});
    file_.program.inputs.push_back({.argument = {TensorName{"x"}}});
  }

  // Parameters of the same `memory` are tied.
  void parameter(const std::string& name, std::int64_t elements, std::size_t memory) {
    file_.program.graph.inputs.push_back({TensorName{"p_" + name}});
    file_.program.inputs.push_back({.kind = InputSpec::Kind::kParameter,
                                    .argument = {TensorName{"p_" + name}},
                                    .target = name});
    file_.state[name] = {.sizes = {elements},
                         .storage = {memory_.data() + memory, memory_.size() - memory}};
  }

  // A call in the module `path` that returns a tensor [N, channels] of the name `output`.
  void call(const std::string& target, const std::string& path,
            std::initializer_list<std::string> inputs, const std::string& output, int channels) {
    program::Node node{.target = "torch.ops.aten." + target,
                       .outputs = {{TensorName{output}}},
                       .module_path = path,
                       .source = "net.py:7: x = self.f(x)"};
    for (const std::string& input : inputs) node.inputs.push_back({"self", {TensorName{input}}});
    describe(output, channels);
    file_.program.graph.nodes.push_back(std::move(node));
  }

  // A call that returns a size.
  void size_of(const std::string& input) {
    program::Node node{.target = "torch.ops.aten.sym_size.int",
                       .inputs = {{"self", {TensorName{input}}}},
                       .outputs = {{program::NumberName{"n"}}}};
    file_.program.graph.nodes.push_back(std::move(node));
  }

  void result(const std::string& value) {
    file_.program.graph.outputs.push_back({TensorName{value}});
    file_.program.outputs.push_back({.argument = {TensorName{value}}});
  }

  program::Pt2File& file() { return file_; }

  ProgramPicture draw(std::optional<int> depth = {}, const std::vector<NodeCut>& cuts = {}) const {
    return picture_of("some/net.pt2", file_, depth, cuts);
  }

 private:
  void describe(const std::string& value, int channels) {
    file_.program.graph.tensors[value] = {
        .dtype = kFloat32, .sizes = {{.value = 4, .expression = "s0"}, {.value = channels}}};
  }

  std::array<std::byte, 8> memory_{};
  program::Pt2File file_;
};

// stem, then two blocks with a connection around the first one, and a head of the model's own.
DrawnNet residual_net() {
  DrawnNet net;
  net.parameter("stem.weight", 27, 0);
  net.parameter("body.0.conv.weight", 1000, 1);
  net.parameter("body.1.weight", 27, 0);
  net.size_of("x");
  net.call("conv2d.default", "stem", {"x", "p_stem.weight"}, "a", 8);
  net.call("conv2d.default", "body.0.conv", {"a", "p_body.0.conv.weight"}, "b", 8);
  net.call("relu_.default", "body.0", {"b"}, "c", 8);
  net.call("mul.Tensor", "body.1", {"c", "p_body.1.weight"}, "d", 16);
  net.call("add.Tensor", "body.1", {"d", "a"}, "e", 16);
  net.call("flatten.using_ints", "", {"e"}, "f", 16);
  net.result("f");
  return net;
}

std::vector<std::string> headings(const ProgramPicture& picture) {
  std::vector<std::string> names;
  for (const ProgramBox& box : picture.boxes) names.push_back(box.heading());
  return names;
}

std::vector<std::string> line_texts(const ProgramPicture& picture) {
  std::vector<std::string> texts;
  for (const ProgramLine& line : picture.lines) {
    texts.push_back(str(line.from, " to ", line.to, ": ", line.shapes));
  }
  return texts;
}

TEST(ProgramPicture, HasABoxForEachModuleOfALevel) {
  const DrawnNet net = residual_net();
  EXPECT_THAT(headings(net.draw(0)), ElementsAre("images", "Net", "result"));
  EXPECT_THAT(headings(net.draw(1)), ElementsAre("images", "stem", "body", "flatten", "result"));
  const std::vector<std::string> two = headings(net.draw(2));
  EXPECT_THAT(two, ElementsAre("images", "stem", "body.0", "body.1", "flatten", "result"));
  const ProgramPicture three = net.draw(3);
  EXPECT_THAT(headings(three),
              ElementsAre("images", "stem", "body.0.conv", "relu_", "body.1", "flatten", "result"));
  EXPECT_EQ(three.boxes[3].kind, BoxKind::kCalls);
  EXPECT_EQ(three.boxes[3].name, "body.0");
  EXPECT_EQ(headings(net.draw()), headings(three)) << "the deepest level has few boxes";
}

TEST(ProgramPicture, DescribesTheBoxes) {
  const ProgramPicture picture = residual_net().draw(2);
  EXPECT_EQ(picture.title, "net.pt2: 7 calls in 4 boxes at depth 2, 1,027 parameters");
  const std::vector<ProgramBox>& boxes = picture.boxes;
  EXPECT_EQ(boxes[0].type, "float32");
  EXPECT_EQ(boxes[0].shapes, "[N, 3]");
  EXPECT_EQ(boxes[2].type, "Block");
  EXPECT_EQ(boxes[2].calls, "conv2d, relu_");
  EXPECT_EQ(boxes[2].shapes, "[N, 8]");
  EXPECT_EQ(boxes[2].source, "net.py:7: x = self.f(x)");
  EXPECT_EQ(boxes[1].parameters, 27);
  EXPECT_EQ(boxes[2].parameters, 1000);
  EXPECT_EQ(boxes[3].parameters, 0) << "it is tied to that of the stem";
  EXPECT_EQ(boxes[5].kind, BoxKind::kResult);
  EXPECT_THAT(line_texts(picture),
              ElementsAre("0 to 1: [N, 3]", "1 to 2: [N, 8]", "1 to 3: [N, 8]", "2 to 3: [N, 8]",
                          "3 to 4: [N, 16]", "4 to 5: [N, 16]"));
  EXPECT_EQ(picture.module_types.at("body"), "Sequential");
}

TEST(ProgramPicture, HasTwoBoxesForAModuleThatIsCalledTwice) {
  DrawnNet net;
  net.call("relu.default", "stem", {"x"}, "a", 3);
  net.call("relu.default", "body", {"a"}, "b", 3);
  net.call("relu.default", "stem", {"b"}, "c", 3);
  net.result("c");
  EXPECT_THAT(headings(net.draw(1)), ElementsAre("images", "stem", "body", "stem", "result"));
}

TEST(ProgramPicture, EndsABoxWhereAStageEnds) {
  const DrawnNet net = residual_net();
  const ProgramPicture picture = net.draw(1, {{.node = 3, .bytes = 640}, {.node = 6, .bytes = 2}});
  EXPECT_THAT(headings(picture),
              ElementsAre("images", "stem", "body", "body", "flatten", "result"));
  std::vector<int> stages;
  for (const ProgramBox& box : picture.boxes) stages.push_back(box.stage);
  EXPECT_THAT(stages, ElementsAre(0, 0, 0, 1, 2, 2));
  ASSERT_EQ(picture.cuts.size(), 2U);
  EXPECT_EQ(picture.cuts[0].box, 3U);
  EXPECT_EQ(picture.cuts[0].bytes, 640);
  EXPECT_EQ(picture.cuts[1].box, 4U);
}

// A damaged file may change between modules at every node.
TEST(ProgramPicture, RefusesMoreBoxesThanCanBeRead) {
  DrawnNet net;
  std::string last = "x";
  for (int i = 0; i < 100'000; ++i) {
    const std::string next = "v" + std::to_string(i);
    net.call("relu.default", i % 2 == 0 ? "stem" : "body.0", {last}, next, 3);
    last = next;
  }
  net.result(last);
  EXPECT_THAT(headings(net.draw()), ElementsAre("images", "Net", "result"));
  try {
    net.draw(1);
    ADD_FAILURE() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "some/net.pt2 has 100000 boxes at --depth 1, but a picture can have at most 2000; "
                 "give a smaller --depth");
  }
}

TEST(ProgramPicture, DrawsManyArgumentsAsOneBox) {
  DrawnNet net;
  net.file().program.graph.tensors["y"] = {.dtype = kFloat32, .sizes = {{.value = 2}}};
  for (int i = 0; i < 20; ++i) {
    net.file().program.graph.inputs.push_back({TensorName{"y"}});
    net.file().program.inputs.push_back({.argument = {TensorName{"y"}}});
  }
  net.call("add.Tensor", "stem", {"x", "y"}, "z", 3);
  net.result("z");
  const ProgramPicture picture = net.draw();
  EXPECT_THAT(headings(picture), ElementsAre("21 arguments", "stem", "result"));
  EXPECT_EQ(picture.boxes[0].shapes, "[N, 3], [2]");
}

TEST(ProgramDrawings, TheSvgHasBoxesLinesAndStages) {
  const std::string svg = program_svg(residual_net().draw(2, {{.node = 4, .bytes = 3'000'000}}));
  EXPECT_EQ(testing_support::malformed(svg), "");
  for (const char* text : {">stem</text>", ">Conv2d</text>", ">1,000 parameters</text>",
                           ">[N, 8]</text>", ">flatten</text>", ">stage 0</text>",
                           ">stage 1, 3.0 MB cross with the batch of the export</text>",
                           "<title>stem to body.1: [N, 8]</title>", "class=\"c0\"", "class=\"c1\"",
                           "net.py:7: x = self.f(x)"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(program_svg(residual_net().draw(2)),
              AllOf(Not(HasSubstr("stage")), Not(HasSubstr(" cross "))));
}

TEST(ProgramDrawings, TheTextIsATreeOfModules) {
  EXPECT_EQ(program_text(residual_net().draw(2, {{.node = 4, .bytes = 256}})),
            "net.pt2: 7 calls in 4 boxes at depth 2, 1,027 parameters\n"
            "images      float32            [N, 3]\n"
            "stem        Conv2d         27  [N, 8]\n"
            "body        Sequential\n"
            "  0         Block       1,000  [N, 8]\n"
            "-- stage 1                     256 B cross\n"
            "body        Sequential\n"
            "  1         Block              [N, 16]      from stem, body.0\n"
            "flatten                        [N, 16]\n"
            "result      float32            [N, 16]\n");
}

TEST(ProgramDrawings, TheGraphForGraphvizHasClustersOfStages) {
  const std::string dot = program_dot(residual_net().draw(2, {{.node = 4, .bytes = 256}}));
  EXPECT_THAT(dot, testing::StartsWith("digraph {\n"));
  EXPECT_THAT(
      dot, HasSubstr("subgraph cluster_1 {\nlabel=\"stage 1\"\nn3 [label=\"body.1\\nBlock\"]\n"));
  EXPECT_THAT(dot, HasSubstr("n1 -> n3 [label=\"[N, 8]\"]\n"));
  EXPECT_THAT(dot, HasSubstr("1,000 parameters"));
  EXPECT_THAT(program_dot(residual_net().draw(2)), Not(HasSubstr("subgraph")));
}

// All names come from the file.
TEST(ProgramDrawings, EscapeNames) {
  DrawnNet net;
  const std::string evil = "a<b>&\"\\\n\xff.c";
  net.file().program.graph.module_classes[evil] = "x.<script>\"\\";
  net.call("relu\n\"<&.default", evil, {"x"}, "y", 3);
  net.call("relu.default", std::string(10'000, 'z'), {"y"}, "z", 3);
  net.result("z");
  net.file().program.argument_names = {"<&\"\n>"};
  const ProgramPicture picture = net.draw(2);
  EXPECT_EQ(picture.boxes[2].name.size(), 80U);
  const std::string svg = program_svg(picture);
  EXPECT_EQ(testing_support::malformed(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(program_dot(picture),
              HasSubstr("label=\"a<b>&\\\"\\\\?\\\\xff.c\\n<script>\\\"\\\\\"]"));
  const std::string text = program_text(picture);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
}

}  // namespace
}  // namespace lockstep::cli
