// Models of the operator cases compute what LibTorch does, for batches that the export has not
// seen. onnx_oracle.py compares them in onnxruntime, which `make test` does not have.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/TensorIndexing.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/core/strings.h>
#include <lockstep/export/lowering/translate.h>
#include <lockstep/export/trace/trace.h>
#include <tests/export/evaluation/graph_evaluator.h>
#include <tests/export/operators/case_list.h>

namespace lockstep {
namespace {

using testing_support::CaseList;
using testing_support::ExportCase;
using torch::Tensor;

onnx::NamedParameters named_tensors_of(torch::nn::Module& module) {
  onnx::NamedParameters named;
  for (const auto& item : module.named_parameters()) named.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) named.emplace_back(item.key(), item.value());
  return named;
}

// What is wrong with an output; empty if it is close enough. Elements below `least` may differ by
// as much as one of that size.
std::string difference_of(const Tensor& got, const Tensor& wanted, const ExportCase& each,
                          double least) {
  if (got.sizes() != wanted.sizes() || got.scalar_type() != wanted.scalar_type()) {
    return lockstep::str("got ", got.toString(), ' ', got.sizes(), ", expected ", wanted.toString(),
                         ' ', wanted.sizes());
  }
  if (!wanted.is_floating_point()) return got.equal(wanted) ? "" : "whole numbers differ";
  const Tensor finite = wanted.isfinite();
  const Tensor a = got.to(at::kDouble);
  const Tensor b = wanted.to(at::kDouble);
  const Tensor zero = at::zeros_like(b);
  const Tensor others = b.where(finite.logical_not(), zero);
  if (!a.where(finite.logical_not(), zero).allclose(others, 0, 0, /*equal_nan=*/true)) {
    return "infinities or NaNs differ";
  }
  const Tensor is_zero = b == 0;
  if (each.signed_zeros &&
      !a.signbit().logical_and(is_zero).equal(b.signbit().logical_and(is_zero))) {
    return "signs of zeros differ";
  }
  if (wanted.numel() == 0) return "";
  const Tensor size = b.where(finite, zero).abs();
  const double tiny = wanted.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                                                          : std::numeric_limits<float>::min();
  const double smallest = std::max({tiny, each.negligible, least});
  const Tensor relative_to = each.adds_terms ? size.max() : size;
  const Tensor wrong = (a - b).where(finite, zero).abs() / relative_to.clamp_min(smallest);
  const double most = wrong.max().item<double>();
  return most <= each.tolerance ? "" : lockstep::str("relative error ", most);
}

class OperatorValues : public ::testing::Test {
 protected:
  OperatorValues() { torch::manual_seed(1); }

  // Checks every `parts`th case, beginning with number `part`.
  static void expect_equal(const std::vector<ExportCase>& cases, double least, std::size_t part = 0,
                           std::size_t parts = 1) {
    for (std::size_t i = part; i < cases.size(); i += parts) expect_equal_case(cases[i], least);
  }

 private:
  static void expect_equal_case(const ExportCase& each, double least) {
    const torch::NoGradGuard no_grad;
    each.module->eval();
    const onnx::NamedParameters parameters = named_tensors_of(*each.module);
    try {
      const onnx::Trace trace =
          onnx::trace_module(each.forward, each.make_inputs(each.example_batch), parameters,
                             {.dynamic_batch = each.options.dynamic_batch,
                              .batch_dimensions = each.options.batch_dimensions,
                              .follow_batch = each.options.follow_batch,
                              .allow_reads = each.options.allow_reads});
      for (const int opset : {17, 20}) {
        if (opset < each.first_opset) continue;
        const onnx::Model model =
            onnx::translate(trace, parameters,
                            {.opset = opset,
                             .half = each.options.half,
                             .fold_batch_norm = each.options.fold_batch_norm});
        for (const std::int64_t batch : {1, 7}) expect_equal_results(model, each, batch, least);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << each.name << ": " << error.what();
    }
  }

  static void expect_equal_results(const onnx::Model& model, const ExportCase& each,
                                   std::int64_t batch, double least) {
    const std::vector<Tensor> inputs = each.make_inputs(each.options.dynamic_batch ? batch : 2);
    const std::vector<Tensor> wanted = each.forward(inputs);
    const std::vector<Tensor> got = testing_support::evaluate(model.graph, inputs);
    const std::string where =
        str(each.name, ", opset ", model.opset, ", a batch of ", batch, ", output ");
    ASSERT_EQ(got.size(), wanted.size()) << where;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(difference_of(got[i], wanted[i], each, least), "") << where << i;
    }
  }
};

// Terms of random inputs may nearly cancel out.
constexpr double kLeast = 1e-2;

std::vector<ExportCase> cases_of(void (*add_cases)(CaseList& cases), bool adds_terms) {
  CaseList cases;
  cases.set_adds_terms(adds_terms);
  add_cases(cases);
  return cases.take();
}

TEST_F(OperatorValues, AreThoseOfElementwiseFunctions) {
  expect_equal(cases_of(testing_support::add_elementwise_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfComparisons) {
  expect_equal(cases_of(testing_support::add_comparison_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfActivations) {
  expect_equal(cases_of(testing_support::add_activation_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfMovedElements) {
  expect_equal(cases_of(testing_support::add_shape_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfBorders) {
  expect_equal(cases_of(testing_support::add_padding_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfIndexing) {
  expect_equal(cases_of(testing_support::add_indexing_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfNewTensors) {
  expect_equal(cases_of(testing_support::add_creation_cases, false), kLeast);
}
TEST_F(OperatorValues, AreThoseOfConvolutions) {
  expect_equal(cases_of(testing_support::add_convolution_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfPooling) {
  expect_equal(cases_of(testing_support::add_pooling_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfNormalisations) {
  expect_equal(cases_of(testing_support::add_normalization_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfMatrixProducts) {
  expect_equal(cases_of(testing_support::add_matrix_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfAttention) {
  expect_equal(cases_of(testing_support::add_attention_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfReductions) {
  expect_equal(cases_of(testing_support::add_reduction_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfResizedImages) {
  expect_equal(cases_of(testing_support::add_upsampling_cases, true), kLeast);
}
TEST_F(OperatorValues, AreThoseOfRecurrentLayers) {
  expect_equal(cases_of(testing_support::add_recurrent_cases, true), kLeast);
}

// In a model of float16, an input stays float32 if forward() takes whole numbers from it, through
// whatever moves them. float16 does not hold these odd numbers.
TEST_F(OperatorValues, AreExactForWholeNumbersInHalf) {
  using testing_support::EmptyImpl;
  using Function = Tensor (*)(const Tensor& x);
  const std::pair<const char*, Function> cases[] = {
      {"abs", [](const Tensor& x) { return x.abs(); }},
      {"add", [](const Tensor& x) { return x + 2; }},
      {"alias", [](const Tensor& x) { return at::alias(x); }},
      {"cat", [](const Tensor& x) { return at::cat({x, x}, 1); }},
      {"ceil", [](const Tensor& x) { return x.ceil(); }},
      {"chunk", [](const Tensor& x) { return x.chunk(2, 1)[1]; }},
      {"clamp", [](const Tensor& x) { return x.clamp(1, 60000); }},
      {"clamp_max", [](const Tensor& x) { return x.clamp_max(60000); }},
      {"clamp_min", [](const Tensor& x) { return x.clamp_min(1); }},
      {"clone", [](const Tensor& x) { return x.clone(); }},
      {"contiguous", [](const Tensor& x) { return x.contiguous(); }},
      {"detach", [](const Tensor& x) { return x.detach(); }},
      {"diagonal", [](const Tensor& x) { return x.view({-1, 2, 2}).diagonal(0, 1, 2); }},
      {"dropout", [](const Tensor& x) { return at::dropout(x, 0.5, false); }},
      {"expand", [](const Tensor& x) { return x.unsqueeze(1).expand({-1, 3, 4}); }},
      {"expand_as", [](const Tensor& x) { return x.expand_as(x); }},
      {"flatten", [](const Tensor& x) { return x.unsqueeze(1).flatten(1); }},
      {"flip", [](const Tensor& x) { return x.flip({1}); }},
      {"floor", [](const Tensor& x) { return x.floor(); }},
      {"gather", [](const Tensor& x) { return x.gather(1, (x > 0).to(torch::kLong)); }},
      {"index",
       [](const Tensor& x) { return x.index({torch::indexing::Slice(), torch::tensor({2, 0})}); }},
      {"index_select", [](const Tensor& x) { return x.index_select(1, torch::tensor({2, 0})); }},
      {"movedim", [](const Tensor& x) { return x.unsqueeze(1).movedim(1, 2); }},
      {"mul", [](const Tensor& x) { return x * 3; }},
      {"narrow", [](const Tensor& x) { return x.narrow(1, 1, 2); }},
      {"neg", [](const Tensor& x) { return x.neg(); }},
      {"permute", [](const Tensor& x) { return x.permute({1, 0}); }},
      {"repeat", [](const Tensor& x) { return x.repeat({1, 2}); }},
      {"reshape", [](const Tensor& x) { return x.reshape({-1, 2}); }},
      {"roll", [](const Tensor& x) { return x.roll(1, 1); }},
      {"round", [](const Tensor& x) { return x.round(); }},
      {"rsub", [](const Tensor& x) { return at::rsub(x, 2); }},
      {"select", [](const Tensor& x) { return x.select(1, 1); }},
      {"slice", [](const Tensor& x) { return x.slice(1, 1, 3); }},
      {"split", [](const Tensor& x) { return x.split(2, 1)[0]; }},
      {"split_with_sizes", [](const Tensor& x) { return x.split_with_sizes({1, 3}, 1)[1]; }},
      {"squeeze", [](const Tensor& x) { return x.unsqueeze(1).squeeze(1); }},
      {"stack", [](const Tensor& x) { return at::stack({x, x}, 1); }},
      {"sub", [](const Tensor& x) { return x - 2; }},
      {"t", [](const Tensor& x) { return x.t(); }},
      {"tensor_split", [](const Tensor& x) { return x.tensor_split(2, 1)[0]; }},
      {"to", [](const Tensor& x) { return x.to(torch::kDouble); }},
      {"transpose", [](const Tensor& x) { return x.transpose(0, 1); }},
      {"trunc", [](const Tensor& x) { return x.trunc(); }},
      {"type_as", [](const Tensor& x) { return x.type_as(torch::zeros({1}, torch::kDouble)); }},
      {"unbind", [](const Tensor& x) { return x.unbind(1)[1]; }},
      {"unflatten", [](const Tensor& x) { return x.unflatten(1, {2, 2}); }},
      {"unsqueeze", [](const Tensor& x) { return x.unsqueeze(1); }},
      {"view", [](const Tensor& x) { return x.view({-1, 2}); }},
      {"view_as", [](const Tensor& x) { return x.view_as(x); }},
      // These need each digit themselves.
      {"floor_divide", [](const Tensor& x) { return x.floor_divide(2); }},
      {"div", [](const Tensor& x) { return x.div(2, "floor"); }},
      {"fmod", [](const Tensor& x) { return x.fmod(2); }},
      {"remainder", [](const Tensor& x) { return x.remainder(2); }},
      {"frac", [](const Tensor& x) { return (x * 0.5).frac() * 2; }}};
  std::vector<ExportCase> whole;
  for (const auto& [name, function] : cases) {
    whole.push_back({.name = name,
                     .module = std::make_shared<EmptyImpl>(),
                     .forward =
                         [code = function](const std::vector<Tensor>& x) {
                           return std::vector<Tensor>{code(x[0]).to(torch::kLong)};
                         },
                     .inputs = {testing_support::rows_of({2049, 2051, 2053, 4099})},
                     .options = {.half = true}});
  }
  expect_equal(whole, /*least=*/0);
}

// The special numbers are several hundred cases.
class SpecialOperatorValues : public OperatorValues,
                              public ::testing::WithParamInterface<std::size_t> {
 protected:
  static constexpr std::size_t kParts = 4;
};

TEST_P(SpecialOperatorValues, AreThoseOfLibTorch) {
  expect_equal(cases_of(testing_support::add_edge_cases, false), /*least=*/0, GetParam(), kParts);
}

INSTANTIATE_TEST_SUITE_P(Part, SpecialOperatorValues, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace lockstep
