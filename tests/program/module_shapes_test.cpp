// The output shapes of a program's modules.
#include <lockstep/program/module_shapes.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <lockstep/program/program.h>
#include <tests/program/net_file.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;
using testing_support::NetFile;
using Shape = std::vector<std::int64_t>;

std::string add_linear(NetFile& file, const std::string& x, const std::string& name, int size) {
  const std::string weight = file.parameter(name + ".weight", torch::ones({size, 6}));
  return file.call("torch.ops.aten.linear.default",
                   {{"input", NetFile::tensor(x)}, {"weight", NetFile::tensor(weight)}}, {0, size},
                   name, "torch.nn.modules.linear.Linear");
}

std::map<std::string, Shape> by_name(const Program& net,
                                     const program::ModuleShapes::Shapes& shapes) {
  std::map<std::string, Shape> named;
  for (const auto& module : net->named_modules("", /*include_self=*/false)) {
    const auto found = shapes.find(module.value().get());
    if (found != shapes.end()) named[module.key()] = found->second;
  }
  return named;
}

// `block` returns one tensor; `pair` returns two of several shapes.
TEST(ProgramModuleShapes, AreThoseOfTheTensorsThatOthersUse) {
  NetFile file;
  const std::string x = file.input("x", {0, 6});
  std::string y = add_linear(file, x, "block.fc", 6);
  y = file.call("torch.ops.aten.relu.default", {{"self", NetFile::tensor(y)}}, {0, 6}, "block",
                "net.Block");
  const std::string rows = add_linear(file, y, "pair.fc", 4);
  const std::string columns =
      file.call("torch.ops.aten.t.default", {{"self", NetFile::tensor(rows)}}, {4, 0}, "pair");
  file.output(file.call("torch.ops.aten.mm.default",
                        {{"self", NetFile::tensor(rows)}, {"mat2", NetFile::tensor(columns)}},
                        {0, 0}));
  const testing_support::TemporaryDirectory folder;
  file.write(folder / "net.pt2");
  Program net(folder / "net.pt2");
  program::ModuleShapes shapes;
  {
    const program::ModuleShapesScope scope(shapes);
    net->forward(torch::ones({3, 6}));
  }
  EXPECT_THAT(by_name(net, shapes.outputs),
              UnorderedElementsAre(Pair("block", Shape{3, 6}), Pair("block.fc", Shape{3, 6}),
                                   Pair("pair.fc", Shape{3, 4})));
  EXPECT_THAT(shapes.outputs.at(net.get()), ElementsAre(3, 3));
  EXPECT_THAT(by_name(net, shapes.last_operations), ElementsAre(Pair("pair", Shape{4, 3})));
  EXPECT_EQ(net->named_modules()["block"]->name(), "Block");
  EXPECT_EQ(net->named_modules()["pair.fc"]->name(), "Linear");
  EXPECT_EQ(program::ModuleShapesScope::current(), nullptr);
}

}  // namespace
}  // namespace lockstep
