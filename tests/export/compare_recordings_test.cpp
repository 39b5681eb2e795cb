// What is alike in recordings of one piece of code, what follows the batch, what varies, and where
// its operations are.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/export/trace/compare_recordings.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using onnx::Extent;
using onnx::Extents;
using onnx::Recording;
using ::testing::HasSubstr;
using testing_support::message_of;
using torch::Tensor;

using Tensors = std::vector<Tensor>;
using TracedCode = std::function<Tensors(const Tensor& x)>;

Recording recording_of(const TracedCode& code, std::int64_t batch) {
  const onnx::Forward forward = [&code](const Tensors& inputs) { return code(inputs[0]); };
  return onnx::record(forward, {torch::ones({batch, 3})}, {});
}

constexpr std::int64_t kRecordedBatch = 2;

// A recording with a batch of 2, and recordings of the same code with other batches.
class RecordedRuns {
 public:
  RecordedRuns(const TracedCode& code, const std::vector<std::int64_t>& batches)
      : first(recording_of(code, kRecordedBatch)) {
    for (const std::int64_t batch : batches) others.push_back(recording_of(code, batch));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      probes.push_back({.batch = batches[i], .recording = &others[i]});
    }
  }
  RecordedRuns(const RecordedRuns&) = delete;
  RecordedRuns& operator=(const RecordedRuns&) = delete;

  Recording first;
  std::vector<Recording> others;
  std::vector<onnx::BatchProbe> probes;
};

const std::vector<std::int64_t> kProbedBatches = {3, 5, 1};

std::size_t index_of_call(const Recording& recording, std::string_view name) {
  const auto found = std::find_if(recording.calls.begin(), recording.calls.end(),
                                  [name](const onnx::Call& call) { return call.name == name; });
  EXPECT_TRUE(found != recording.calls.end()) << name;
  return static_cast<std::size_t>(found - recording.calls.begin());
}

TEST(OnnxComparison, TellsConstantsApart) {
  using Value = c10::IValue;
  using Numbers = std::vector<std::int64_t>;
  const double nan = std::nan("");
  const Tensor ones = torch::ones({2});
  const std::vector<std::pair<Value, Value>> alike = {
      {Value(true), Value(true)},
      {Value(false), Value(false)},
      {Value(std::int64_t{7}), Value(std::int64_t{7})},
      {Value(0.5), Value(0.5)},
      {Value(nan), Value(nan)},
      {Value(std::string("floor")), Value(std::string("floor"))},
      {Value(), Value()},
      {Value(ones), Value(ones.clone())},
      {Value(Numbers{1, 2}), Value(Numbers{1, 2})}};
  for (const auto& [a, b] : alike) EXPECT_TRUE(onnx::same_constant(a, b)) << a << ' ' << b;
  const std::vector<std::pair<Value, Value>> unlike = {
      {Value(true), Value(false)},
      {Value(true), Value(std::int64_t{1})},
      {Value(std::int64_t{7}), Value(std::int64_t{8})},
      {Value(std::int64_t{7}), Value(7.0)},
      {Value(0.5), Value(0.25)},
      {Value(nan), Value(0.5)},
      {Value(std::string("floor")), Value(std::string("trunc"))},
      {Value(std::string("None")), Value()},
      {Value(std::int64_t{0}), Value()},
      {Value(ones), Value(ones + 1)},
      {Value(ones), Value()},
      {Value(ones), Value(1.0)},
      {Value(Numbers{1, 2}), Value(Numbers{1, 3})},
      {Value(Numbers{1, 2}), Value(Numbers{1})}};
  for (const auto& [a, b] : unlike) {
    EXPECT_FALSE(onnx::same_constant(a, b)) << a << ' ' << b;
    EXPECT_FALSE(onnx::same_constant(b, a)) << b << ' ' << a;
  }
}

TEST(OnnxComparison, TellsOperationsApart) {
  // Both tensors are outputs, so that no operation is unused.
  const auto with_both = [](auto&& third) -> TracedCode {
    return [third](const Tensor& x) {
      const Tensor y = x.relu();
      const Tensor z = x.sigmoid();
      return Tensors{y, z, third(y, z)};
    };
  };
  const auto two = [](const Tensor& y, const Tensor& z) { return y - z; };
  const auto choice = [](const Tensor& y, const Tensor& z) { return at::where(y > 0, y, z); };
  struct Case {
    const char* name;
    TracedCode a;
    TracedCode b;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"the same", with_both(two), with_both(two), "nothing was thrown"},
      {"another number", [](const Tensor& x) { return Tensors{x.mul(2)}; },
       [](const Tensor& x) { return Tensors{x.mul(3)}; }, "nothing was thrown"},
      {"the first operand", with_both(two),
       with_both([](const Tensor&, const Tensor& z) { return z - z; }),
       "one run called aten::sub, another aten::sub; an exported graph has a single path"},
      {"the second operand", with_both(two),
       with_both([](const Tensor& y, const Tensor&) { return y - y; }),
       "one run called aten::sub, another aten::sub; an exported graph has a single path"},
      {"the last operand", with_both(choice),
       with_both([](const Tensor& y, const Tensor&) { return at::where(y > 0, y, y); }),
       "one run called aten::where, another aten::where; an exported graph has a single path"},
      {"the only operand", with_both([](const Tensor& y, const Tensor&) { return y.abs(); }),
       with_both([](const Tensor&, const Tensor& z) { return z.abs(); }),
       "one run called aten::abs, another aten::abs; an exported graph has a single path"},
      {"another operation", [](const Tensor& x) { return Tensors{x.relu()}; },
       [](const Tensor& x) { return Tensors{x.sigmoid()}; },
       "one run called aten::relu, another aten::sigmoid; an exported graph has a single path"},
      {"a further operation", [](const Tensor& x) { return Tensors{x.relu()}; },
       [](const Tensor& x) { return Tensors{x.relu().abs()}; },
       "one run ended, another called aten::abs; an exported graph has a single path"},
      {"an operation less", [](const Tensor& x) { return Tensors{x.relu().abs()}; },
       [](const Tensor& x) { return Tensors{x.relu()}; },
       "one run called aten::abs, another ended; an exported graph has a single path"},
      {"more operands", [](const Tensor& x) { return Tensors{x.sum()}; },
       [](const Tensor& x) { return Tensors{x.sum(0)}; }, "one run called aten::sum, another"},
      {"more results",
       [](const Tensor& x) {
         const auto parts = x.chunk(2, 1);
         return Tensors{parts[0], parts[1]};
       },
       [](const Tensor& x) {
         const auto parts = x.chunk(3, 1);
         return Tensors{parts[0], parts[1]};
       },
       "one run called prim::ListUnpack, another prim::ListUnpack; the number of "
       "pieces varies: cut another dimension"}};
  for (const Case& each : cases) {
    const Recording first = recording_of(each.a, kRecordedBatch);
    const Recording other = recording_of(each.b, kRecordedBatch);
    const auto locations = onnx::module_locations_of(*first.graph, 1, {});
    const std::string message = message_of<ConfigError>(
        [&] { onnx::require_same_operations(first, other, locations, "other values"); });
    EXPECT_THAT(message, HasSubstr(each.message)) << each.name;
  }
}

// Operations on parameters and constants alone make a parameter of another form, and an operation
// with several parameters belongs to the largest.
TEST(OnnxLocations, AreThoseOfTheParametersThatOperationsUse) {
  const Tensor weight = torch::ones({3, 3}), other = torch::ones({3, 3});
  const Tensor bias = torch::ones({3}), scale = torch::ones({1});
  const onnx::NamedParameters parameters = {
      {"a.weight", weight}, {"b.weight", other}, {"b.bias", bias}, {"scale", scale}};
  const onnx::Forward forward = [&](const Tensors& inputs) {
    const Tensor x = inputs[0].abs();
    const Tensor form = weight.t().transpose(0, 1).mul(2);
    const Tensor y = at::linear(at::addmm(bias, x, other), other, bias).sigmoid();
    return Tensors{y.matmul(form).relu().div(scale)};
  };
  const Recording recording = onnx::record(forward, {torch::ones({2, 3})}, parameters);
  const auto locations = onnx::module_locations_of(*recording.graph, 1, parameters);
  std::vector<std::string> found;
  for (const torch::jit::Node* node : recording.graph->nodes()) {
    if (!node->kind().is_aten()) continue;
    found.push_back(str(node->kind().toQualString(), ' ', locations.at(node).text()));
  }
  EXPECT_THAT(
      found,
      ::testing::ElementsAre(
          "aten::abs before the first parameter", "aten::t in a (parameter a.weight)",
          "aten::transpose in a (parameter a.weight)", "aten::mul in a (parameter a.weight)",
          "aten::addmm in b (parameter b.weight)", "aten::linear in b (parameter b.weight)",
          "aten::sigmoid after b (parameter b.weight)", "aten::matmul in a (parameter a.weight)",
          "aten::relu after a (parameter a.weight)",
          "aten::div in the module itself (parameter scale)"));
}

// Each place is named once, however many recordings differ there.
TEST(OnnxComparison, FindsTheConstantsThatDiffer) {
  const auto code = [](std::int64_t factor, std::int64_t dimension, float added) -> TracedCode {
    return [=](const Tensor& x) {
      return Tensors{(x.mul(factor) + 5).sum(dimension, true) +
                     torch::tensor({added, added, added})};
    };
  };
  const Recording first = recording_of(code(2, 0, 7), 2);
  const Recording same = recording_of(code(2, 0, 7), 2);
  EXPECT_TRUE(onnx::differing_constants(first, {}).empty());
  EXPECT_TRUE(onnx::differing_constants(first, {&same, &same}).empty());
  struct Case {
    TracedCode other;
    const char* user;
    const char* text;
  };
  const Case cases[] = {{code(3, 0, 7), "aten::mul", "2"},
                        {code(2, 1, 7), "aten::sum", "0"},  // a member of a list
                        {code(2, 0, 8), "aten::add", "a tensor [3]"}};
  for (const Case& each : cases) {
    const Recording other = recording_of(each.other, 2);
    const std::vector<std::vector<const Recording*>> lists = {
        {&other}, {&same, &other}, {&other, &same}, {&other, &other}};
    for (const auto& others : lists) {
      const auto baked = onnx::differing_constants(first, others);
      ASSERT_EQ(baked.size(), 1U) << each.user;
      EXPECT_STREQ(baked[0].user->kind().toQualString(), each.user);
      EXPECT_EQ(baked[0].text, each.text);
      EXPECT_EQ(onnx::user_of(*baked[0].value), baked[0].user);
      EXPECT_FALSE(baked[0].extent) << each.user;
    }
  }
}

TEST(OnnxComparison, FindsHowNumbersFollowTheBatch) {
  using Number = std::function<torch::Scalar(std::int64_t batch)>;
  struct Case {
    const char* name;
    Number number;
    std::vector<std::int64_t> batches;
    bool differs;
    std::optional<Extent> extent;
  };
  using Scalar = torch::Scalar;
  const auto other_for = [](std::int64_t which) -> Number {
    return [which](std::int64_t batch) { return Scalar(std::int64_t{batch == which ? 7 : 4}); };
  };
  const std::vector<Case> cases = {
      {"the batch", [](std::int64_t batch) { return Scalar(batch); }, kProbedBatches, true,
       Extent{.size = 2, .per_batch = 1, .offset = 0}},
      {"a factor and an addend", [](std::int64_t batch) { return Scalar(3 * batch + 4); },
       kProbedBatches, true, Extent{.size = 10, .per_batch = 3, .offset = 4}},
      {"falling", [](std::int64_t batch) { return Scalar(10 - batch); }, kProbedBatches, true,
       Extent{.size = 8, .per_batch = -1, .offset = 10}},
      {"always the same", [](std::int64_t) { return Scalar(std::int64_t{4}); }, kProbedBatches,
       false, std::nullopt},
      {"another for 3", other_for(3), kProbedBatches, true, std::nullopt},
      {"another for 5", other_for(5), kProbedBatches, true, std::nullopt},
      {"another for 1", other_for(1), kProbedBatches, true, std::nullopt},
      {"a square", [](std::int64_t batch) { return Scalar(batch * batch); }, kProbedBatches, true,
       std::nullopt},
      {"half of the batch",
       [](std::int64_t batch) { return Scalar(batch / 2); },
       {4, 6},
       true,
       std::nullopt},
      {"fractions", [](std::int64_t batch) { return Scalar(0.5 * static_cast<double>(batch)); },
       kProbedBatches, true, std::nullopt},
      {"a fraction once",
       [](std::int64_t batch) {
         return batch == 5 ? Scalar(static_cast<double>(batch)) : Scalar(batch);
       },
       kProbedBatches, true, std::nullopt}};
  for (const Case& each : cases) {
    const TracedCode code = [&](const Tensor& x) { return Tensors{x.mul(each.number(x.size(0)))}; };
    RecordedRuns runs(code, each.batches);
    const auto baked = onnx::following_constants(runs.first, kRecordedBatch, runs.probes);
    ASSERT_EQ(baked.size(), each.differs ? 1U : 0U) << each.name;
    if (each.differs) {
      EXPECT_STREQ(baked[0].user->kind().toQualString(), "aten::mul") << each.name;
      EXPECT_EQ(baked[0].text, each.name == std::string_view("fractions")
                                   ? "1."
                                   : str(each.number(kRecordedBatch).toLong()))
          << each.name;
      EXPECT_TRUE(baked[0].extent == each.extent) << each.name;
      EXPECT_EQ(baked[0].value, baked[0].user->input(1)) << each.name;
    }
    // The argument of the call follows the batch in the same way.
    onnx::compare_arguments_of_calls(runs.first, kRecordedBatch, runs.probes);
    const auto& arguments = runs.first.calls.at(index_of_call(runs.first, "aten::mul")).arguments;
    EXPECT_TRUE(arguments.at(1).extent == each.extent) << each.name;
    EXPECT_EQ(arguments.at(1).varies, each.differs && !each.extent) << each.name;
    EXPECT_FALSE(arguments.at(0).varies) << each.name;
  }
}

// Lists, tensors, and what is not given.
TEST(OnnxComparison, FindsTheArgumentsThatVary) {
  const TracedCode code = [](const Tensor& x) {
    const std::int64_t batch = x.size(0);
    const Tensor y = x.abs();
    y.view({batch, 3, 1});
    y.permute(batch == 5 ? torch::IntArrayRef{1, 0} : torch::IntArrayRef{0, 1});
    at::cat(batch == 5 ? Tensors{x, y, y} : Tensors{x, y}, 1);
    at::add(x, batch == 5 ? x : y);
    const Tensor bias = x[0];
    at::linear(x, torch::ones({3, 3}), batch == 5 ? Tensor() : bias);
    at::stack({x, y}, 0);
    return Tensors{x.relu()};
  };
  RecordedRuns runs(code, kProbedBatches);
  onnx::compare_arguments_of_calls(runs.first, kRecordedBatch, runs.probes);
  const auto argument = [&](const char* name, std::size_t i) -> const onnx::Argument& {
    return runs.first.calls.at(index_of_call(runs.first, name)).arguments.at(i);
  };
  const onnx::Argument& view = argument("aten::view", 1);
  ASSERT_EQ(view.members.size(), 3U);
  EXPECT_TRUE(view.is_list);
  EXPECT_FALSE(view.varies);
  EXPECT_TRUE(view.members[0].extent == (Extent{.size = 2, .per_batch = 1, .offset = 0}));
  EXPECT_FALSE(view.members[0].varies);
  EXPECT_FALSE(view.members[1].extent || view.members[1].varies);
  const onnx::Argument& order = argument("aten::permute", 1);
  ASSERT_EQ(order.members.size(), 2U);
  EXPECT_FALSE(order.varies);
  EXPECT_TRUE(order.members[0].varies && order.members[1].varies);
  EXPECT_TRUE(argument("aten::cat", 0).varies);
  EXPECT_FALSE(argument("aten::cat", 1).varies);
  EXPECT_FALSE(argument("aten::add", 0).varies);
  EXPECT_TRUE(argument("aten::add", 1).varies);
  EXPECT_TRUE(argument("aten::linear", 2).varies);
  const onnx::Argument& stacked = argument("aten::stack", 0);
  ASSERT_EQ(stacked.members.size(), 2U);
  EXPECT_FALSE(stacked.varies || stacked.members[0].varies || stacked.members[1].varies);
  EXPECT_TRUE(stacked.members[0].origin && stacked.members[1].origin);
}

TEST(OnnxComparison, RefusesOtherUnusedCalls) {
  const auto with_unused = [](auto&& unused) -> TracedCode {
    return [unused](const Tensor& x) {
      const Tensor y = x.relu();
      unused(x);
      return Tensors{y};
    };
  };
  struct Case {
    const char* name;
    TracedCode code;
    const char* at;  // null: nothing is refused
  };
  const Case cases[] = {{"alike", with_unused([](const Tensor& x) { x.abs(); }), nullptr},
                        {"one less behind the others", with_unused([](const Tensor& x) {
                           if (x.size(0) != 5) x.abs();
                         }),
                         "at aten::abs: "},
                        {"one more behind the others", with_unused([](const Tensor& x) {
                           if (x.size(0) == 5) x.abs();
                         }),
                         "at aten::abs: "},
                        {"another operation", with_unused([](const Tensor& x) {
                           const Tensor unused = x.size(0) == 5 ? x.abs() : x.sigmoid();
                         }),
                         "at aten::abs: "},
                        {"another form", with_unused([](const Tensor& x) {
                           const Tensor unused = x.size(0) == 5 ? x.sum() : x.sum(0);
                         }),
                         "at aten::sum: "},
                        {"one less before the others",
                         [](const Tensor& x) {
                           if (x.size(0) != 5) x.abs();
                           return Tensors{x.relu()};
                         },
                         "at aten::relu: "}};
  for (const Case& each : cases) {
    RecordedRuns runs(each.code, kProbedBatches);
    const std::string message = message_of<ConfigError>(
        [&] { onnx::compare_arguments_of_calls(runs.first, kRecordedBatch, runs.probes); });
    if (each.at == nullptr) {
      EXPECT_EQ(message, "nothing was thrown") << each.name;
      continue;
    }
    EXPECT_THAT(message, HasSubstr("with a batch of 5, forward() takes a different path in "
                                   "operations on which no output depends, "))
        << each.name;
    EXPECT_THAT(message, HasSubstr(each.at)) << each.name;
  }
}

// Without other batches, all sizes are fixed.
TEST(OnnxComparison, FindsTheSizesInTheGraph) {
  const TracedCode code = [](const Tensor& x) {
    return Tensors{at::cat({x, x, torch::ones({1, 3})}, 0)};
  };
  const RecordedRuns runs(code, kProbedBatches);
  const auto locations = onnx::module_locations_of(*runs.first.graph, 1, {});
  const Recording same = recording_of(code, kRecordedBatch);
  const torch::jit::Value* const input = runs.first.graph->inputs()[0];
  const torch::jit::Value* const output = runs.first.graph->outputs()[0];
  const Extent three = onnx::static_extent(3);
  const auto sizes =
      onnx::traced_sizes(runs.first, {&same}, kRecordedBatch, runs.probes, locations);
  EXPECT_TRUE(sizes.at(input) == (Extents{{.size = 2, .per_batch = 1, .offset = 0}, three}));
  EXPECT_TRUE(sizes.at(output) == (Extents{{.size = 5, .per_batch = 2, .offset = 1}, three}));
  const auto fixed = onnx::traced_sizes(runs.first, {&same}, kRecordedBatch, {}, locations);
  EXPECT_TRUE(fixed.at(input) == (Extents{onnx::static_extent(2), three}));
  EXPECT_TRUE(fixed.at(output) == (Extents{onnx::static_extent(5), three}));
  const std::string message = message_of<ConfigError>([&] {
    onnx::traced_sizes(runs.first, {&same, &runs.others[0]}, kRecordedBatch, {}, locations);
  });
  EXPECT_THAT(message, HasSubstr("the sizes of the result of an input depend on the values"));
}

// The results of unused operations need not follow the batch.
TEST(OnnxComparison, FindsTheSizesOfCalls) {
  const TracedCode code = [](const Tensor& x) {
    x.flatten();
    x.slice(0, 0, 2);      // 2, 2, 2, 1
    x.slice(0, 0, 4);      // 2, 3, 4, 1
    x.clone().squeeze(0);  // one sample has another rank
    x.abs().unbind(0);     // each batch has another length
    x.max(1);
    return Tensors{x.relu()};
  };
  using Sizes = std::vector<std::optional<Extents>>;
  const Extent batch = {.size = 2, .per_batch = 1, .offset = 0};
  const Extent three = onnx::static_extent(3);
  const auto sizes_of = [](const RecordedRuns& runs, const char* name, std::size_t further = 0) {
    const auto sizes = onnx::sizes_of_calls(runs.first, kRecordedBatch, runs.probes);
    EXPECT_EQ(sizes.size(), runs.first.calls.size());
    return sizes.at(index_of_call(runs.first, name) + further);
  };
  const RecordedRuns runs(code, kProbedBatches);
  EXPECT_TRUE(sizes_of(runs, "aten::relu") == (Sizes{Extents{batch, three}}));
  EXPECT_TRUE(sizes_of(runs, "aten::flatten") ==
              (Sizes{Extents{{.size = 6, .per_batch = 3, .offset = 0}}}));
  EXPECT_TRUE(sizes_of(runs, "aten::slice") == (Sizes{std::nullopt}));
  EXPECT_TRUE(sizes_of(runs, "aten::slice", 1) == (Sizes{std::nullopt}));
  EXPECT_TRUE(sizes_of(runs, "aten::squeeze") == (Sizes{std::nullopt}));
  EXPECT_TRUE(sizes_of(runs, "aten::unbind") == (Sizes{Extents{three}, std::nullopt}));
  EXPECT_TRUE(sizes_of(runs, "aten::max") == (Sizes{Extents{batch}, Extents{batch}}));
  const RecordedRuns alone(code, {});
  const Extent two = onnx::static_extent(2);
  EXPECT_TRUE(sizes_of(alone, "aten::slice") == (Sizes{Extents{two, three}}));
  EXPECT_TRUE(sizes_of(alone, "aten::unbind") == (Sizes{Extents{three}, Extents{three}}));
}

// A sparse tensor's type has no sizes.
TEST(OnnxComparison, FindsNoSizesOfSparseTensors) {
  const TracedCode code = [](const Tensor& x) {
    torch::eye(3).to_sparse();
    return Tensors{x.relu()};
  };
  for (const auto& batches : {std::vector<std::int64_t>{}, kProbedBatches}) {
    const RecordedRuns runs(code, batches);
    const auto sizes = onnx::sizes_of_calls(runs.first, kRecordedBatch, runs.probes);
    const auto& sparse = sizes.at(index_of_call(runs.first, "aten::to_sparse"));
    ASSERT_EQ(sparse.size(), 1U);
    EXPECT_FALSE(sparse[0]);
    const auto& dense = sizes.at(index_of_call(runs.first, "aten::eye"));
    ASSERT_EQ(dense.size(), 1U);
    EXPECT_TRUE(dense[0] == (Extents{onnx::static_extent(3), onnx::static_extent(3)}));
  }
}

}  // namespace
}  // namespace lockstep
