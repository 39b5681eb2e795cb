// Every lowering in the table has a case of the oracle, and vice versa.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/export/lowering/operators.h>
#include <lockstep/export/trace/trace.h>
#include <tests/export/export_case.h>

namespace lockstep {
namespace {

using testing_support::ExportCase;
using testing_support::operator_cases;

std::set<std::string> recorded_operators(const ExportCase& each) {
  const onnx::Recording recording = onnx::record(each.forward, each.make_inputs(2), {});
  std::set<std::string> names;
  for (const torch::jit::Node* node : recording.graph->nodes()) {
    std::string name = node->kind().toUnqualString();
    names.insert(name);
    if (name.ends_with('_')) names.insert(name.substr(0, name.size() - 1));
  }
  return names;
}

TEST(OperatorTable, HasAtLeast120Operators) { EXPECT_GE(onnx::operator_names().size(), 120U); }

TEST(OperatorTable, EveryOperatorHasACase) {
  std::set<std::string> cases;
  for (const ExportCase& each : operator_cases()) cases.insert(each.op);
  std::vector<std::string> missing;
  for (const std::string& name : onnx::operator_names()) {
    if (!cases.contains(name)) missing.push_back(name);
  }
  EXPECT_THAT(missing, ::testing::IsEmpty());
}

TEST(OperatorTable, EveryCaseRecordsItsOperator) {
  for (const ExportCase& each : operator_cases()) {
    for (auto& parameter : each.module->parameters()) parameter.set_requires_grad(false);
    each.module->eval();
    EXPECT_TRUE(recorded_operators(each).contains(each.op)) << each.name;
  }
}

TEST(OperatorTable, FindsTheFormInPlace) {
  EXPECT_EQ(onnx::find_operator("aten::relu_"), onnx::find_operator("aten::relu"));
  EXPECT_NE(onnx::find_operator("aten::__and__"), nullptr);
  EXPECT_EQ(onnx::find_operator("aten::fft_fft"), nullptr);
  EXPECT_EQ(onnx::find_operator("relu"), nullptr);
}

}  // namespace
}  // namespace lockstep
