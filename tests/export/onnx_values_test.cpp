// Values that forward() reads on the host are found, whatever the type of the input and however it
// is filled, and random operations that are off do not end the search.
#include <cmath>
#include <limits>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <lockstep/export/onnx_export.h>
#include <lockstep/export/trace/compare_recordings.h>
#include <lockstep/export/trace/probes.h>
#include <tests/export/onnx_reader.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryDirectory;
using torch::Tensor;

using Forward = std::function<Tensor(const Tensor& x, const Tensor& values)>;

class OnnxValues : public ::testing::Test {
 protected:
  std::string refusal(const Forward& code, const Tensor& values, bool allow_reads) {
    nn::Sequential net(nn::Linear(3, 3));
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{code(net->forward(x[0]), x[1])};
    };
    return refusal_of(*net, forward, {torch::rand({2, 3}), values},
                      {.dynamic_batch = false, .allow_reads = allow_reads});
  }

  std::string refusal_of(nn::Module& net, const OnnxForward& forward,
                         const std::vector<Tensor>& inputs, const OnnxExportOptions& options = {}) {
    try {
      export_onnx(net, forward, inputs, folder / "net.onnx", options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryDirectory folder;
};

// With allow_reads, only the runs with other values can show what a read decides.
TEST_F(OnnxValues, ReadFromInputsThatLookAlike) {
  const Forward slice = [](const Tensor& x, const Tensor& n) {
    return x.slice(1, 0, n.flatten()[0].item<std::int64_t>());
  };
  const Forward branch = [](const Tensor& x, const Tensor& flag) {
    return flag.flatten()[0].item<bool>() ? x.relu() : x.sigmoid();
  };
  const Forward factor = [](const Tensor& x, const Tensor& scale) {
    return x * scale.flatten()[0].item<float>();
  };
  const Forward total = [](const Tensor& x, const Tensor& values) {
    return x * values.sum().item<double>();
  };
  const auto of = [](std::vector<std::int64_t> values, torch::ScalarType type) {
    return torch::tensor(values, torch::kLong).to(type);
  };
  struct Case {
    const char* name;
    Forward code;
    Tensor values;
  };
  const std::vector<Case> cases = {
      {"one length", slice, of({2}, torch::kLong)},
      {"a length without dimensions", slice, torch::tensor(2, torch::kLong)},
      {"equal lengths", slice, of({2, 2, 2}, torch::kInt)},
      {"a length of one", slice, of({1}, torch::kShort)},
      {"a length of zero", factor, of({0}, torch::kByte)},
      {"lengths whose sum stays in any order", total, of({1, 2, 3}, torch::kLong)},
      {"a flag", branch, torch::tensor({true})},
      {"a flag that is off", branch, torch::tensor(false)},
      {"equal flags", branch, torch::tensor({true, true, true})},
      {"flags whose sum stays in any order", total, torch::tensor({true, false, true, false})},
      {"zeros", factor, torch::zeros({3})},
      {"a zero", factor, torch::zeros({})},
      {"equal floats", factor, torch::full({4}, 2.0)},
      {"doubles", total, torch::zeros({2}, torch::kDouble)}};
  for (const Case& each : cases) {
    EXPECT_THAT(refusal(each.code, each.values, /*allow_reads=*/true), HasSubstr("export_onnx: "))
        << each.name;
    EXPECT_THAT(refusal(each.code, each.values, /*allow_reads=*/false), HasSubstr("export_onnx: "))
        << each.name;
  }
}

// A check of indices lets only some values pass.
TEST_F(OnnxValues, VaryWithinWhatForwardTakes) {
  nn::Sequential net(nn::Embedding(4, 3));
  const auto message = [&](const Tensor& words) {
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      const Tensor y = net->forward(x[0]);
      return std::vector<Tensor>{y * x[0].sum().item<std::int64_t>()};
    };
    return refusal_of(*net, forward, {words}, {.dynamic_batch = false, .allow_reads = true});
  };
  for (const auto& words :
       std::vector<std::vector<std::int64_t>>{{3}, {3, 3}, {0, 3}, {0}, {0, 0}}) {
    EXPECT_THAT(message(torch::tensor(words)), HasSubstr("from the values of its inputs"))
        << words.size() << " words from " << words[0];
  }
}

TEST_F(OnnxValues, ReadByComparisonsOfTensors) {
  const std::vector<Forward> codes = {
      [](const Tensor& x, const Tensor& y) { return at::equal(x, y) ? x.relu() : x.sigmoid(); },
      [](const Tensor& x, const Tensor& y) { return at::equal(y, x) ? x.relu() : x.sigmoid(); },
      [](const Tensor& x, const Tensor& y) { return at::allclose(x, y) ? x.relu() : x.sigmoid(); },
      [](const Tensor& x, const Tensor& y) {
        return at::is_nonzero((y > 1e9).any()) ? x.relu() : x.sigmoid();
      }};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_THAT(refusal(codes[i], torch::rand({2, 3}), /*allow_reads=*/false),
                HasSubstr("reads a value out of a tensor"))
        << i;
    EXPECT_EQ(refusal(codes[i], torch::rand({2, 3}), /*allow_reads=*/true), "nothing was refused")
        << i;
  }
}

// A mask that hides everything gives NaN, and LibTorch's attention takes another way for it.
TEST_F(OnnxValues, LeaveSomethingVisibleInMasks) {
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8), /*num_layers=*/2));
  encoder->eval();
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{encoder->forward(x[0], /*src_mask=*/{}, x[1])};
  };
  const std::vector<Tensor> inputs = {torch::rand({5, 2, 4}), torch::zeros({2, 5}, torch::kBool)};
  EXPECT_EQ(refusal_of(*encoder, forward, inputs, {.batch_dimensions = {1, 0}}),
            "nothing was refused");
}

TEST_F(OnnxValues, KeptBetweenCalls) {
  Tensor mask;
  const Forward code = [&](const Tensor& x, const Tensor&) {
    if (!mask.defined()) mask = torch::ones({3, 3}).tril();
    return x.mm(mask);
  };
  EXPECT_THAT(
      refusal(code, torch::rand({2}), /*allow_reads=*/false),
      HasSubstr(
          "forward() takes a different path with the example in a second call (if forward() keeps "
          "something from the first call, such as a mask, call it once before the export)"));
  EXPECT_EQ(refusal(code, torch::rand({2}), /*allow_reads=*/false), "nothing was refused");
}

// torch::nn::MultiheadAttention compares its arguments, too, but with the same result either way.
TEST_F(OnnxValues, ReadByComparisonsBesideAttention) {
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(4, 2));
  attention->eval();
  const auto attend = [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return std::get<0>(attention->forward(query, key, value));
  };
  const auto message = [&](const Forward& code) {
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{code(x[0], x[1])};
    };
    return refusal_of(*attention, forward, {torch::randn({3, 2, 4}), torch::randn({3, 2, 4})},
                      {.dynamic_batch = false});
  };
  const std::vector<Forward> plain = {
      [&](const Tensor& x, const Tensor&) { return attend(x, x, x); },
      [&](const Tensor& x, const Tensor& y) { return attend(x, y, y); },
      [&](const Tensor& x, const Tensor& y) { return attend(x, y, y + 1); },
      [&](const Tensor& x, const Tensor& y) { return attend(attend(x, y, x), y, y * 2); }};
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(message(plain[i]), "nothing was refused") << i;
  }
  const std::vector<Forward> comparing = {
      [&](const Tensor& x, const Tensor& y) {
        const Tensor z = attend(x, y, y);
        return at::equal(z, y) ? z.relu() : z.sigmoid();
      },
      [&](const Tensor& x, const Tensor& y) {
        const Tensor other = y + 1;
        return at::equal(x, other) ? attend(x, x, x) : attend(y, y, y);
      },
      [&](const Tensor& x, const Tensor& y) {
        const Tensor other = y + 1;
        return at::equal(other, x) ? attend(y, y, y) : attend(x, x, x);
      },
      [&](const Tensor& x, const Tensor& y) {
        return at::equal(x, y) ? attend(y, x, x) : attend(x, y, y);
      },
      [&](const Tensor& x, const Tensor& y) {
        const bool is_same = at::equal(x, y);
        const Tensor z = x * 2;
        return is_same ? attend(x, z, z) : attend(z, y, x);
      },
      // The module's own comparisons follow each other: y and z are not such a pair.
      [&](const Tensor& x, const Tensor& y) {
        const Tensor z = x * 2;
        const bool is_same = at::equal(x, y) || at::equal(z, x);
        const Tensor projected = at::linear(x, attention->in_proj_weight);
        return is_same ? projected.relu() : projected.sigmoid();
      },
      // No operation follows the comparison.
      [&](const Tensor& x, const Tensor& y) {
        const Tensor z = attend(x, y, y);
        const Tensor positive = z.relu();
        return at::equal(z, y) ? positive : z;
      }};
  for (std::size_t i = 0; i < comparing.size(); ++i) {
    EXPECT_THAT(message(comparing[i]), HasSubstr("reads a value out of a tensor")) << i;
  }
}

TEST_F(OnnxValues, ReadInSeveralPlaces) {
  nn::Sequential net(nn::Linear(3, 3), nn::Linear(3, 3));
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    const Tensor y = net[0]->as<nn::Linear>()->forward(x[0]);
    const bool is_large = y.max().item<float>() > 1e9F || y.sum().item<float>() > 1e9F;
    const Tensor z = net[1]->as<nn::Linear>()->forward(is_large ? y.relu() : y);
    return std::vector<Tensor>{z.max().item<float>() > 1e9F ? z.relu() : z};
  };
  EXPECT_THAT(refusal_of(*net, forward, {torch::rand({2, 3})}),
              HasSubstr("reads a value out of a tensor (item()) after 0 (parameter 0.weight); "
                        "after 1 (parameter 1.weight); the runs showed no difference"));
}

// The first run with other values finds as many true flags as the example if half of them are true.
TEST_F(OnnxValues, DecideSizes) {
  const Forward selected = [](const Tensor& x, const Tensor& flags) {
    return x.sum() + torch::arange(4).masked_select(flags).sum();
  };
  for (const bool last : {false, true}) {
    const Tensor flags = torch::tensor({true, false, true, last});
    for (const bool allow_reads : {false, true}) {
      EXPECT_THAT(refusal(selected, flags, allow_reads),
                  HasSubstr("the sizes of the result of aten::masked_select after 0 (parameter "
                            "0.weight) depend on the values of the inputs"));
    }
  }
}

// An error of forward() itself is not changed, and leaves the tracer and the module as they were.
TEST_F(OnnxValues, ThatForwardRefuses) {
  nn::Sequential net(nn::Linear(3, 3));
  bool refuses = true;
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    const Tensor y = net->forward(x[0]);
    if (refuses) throw std::out_of_range("no such word");
    return std::vector<Tensor>{y};
  };
  const std::vector<Tensor> inputs = {torch::rand({2, 3})};
  EXPECT_EQ(message_of<std::out_of_range>([&] { refusal_of(*net, forward, inputs); }),
            "no such word");
  EXPECT_TRUE(net->is_training());
  EXPECT_FALSE(torch::jit::tracer::isTracing());
  EXPECT_FALSE(std::filesystem::exists(folder / "net.onnx"));
  refuses = false;
  EXPECT_EQ(refusal_of(*net, forward, inputs), "nothing was refused");
}

// The first recording has no operation at all.
TEST_F(OnnxValues, DecideWhetherThereIsAnOperation) {
  nn::Sequential empty;
  const OnnxForward forward = [](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{x[0].const_data_ptr<float>()[0] > 0 ? x[0] : x[0].relu()};
  };
  EXPECT_THAT(refusal_of(*empty, forward, {torch::ones({2})}, {.allow_reads = true}),
              HasSubstr("takes a different path with other values, at its beginning: one run "
                        "ended, another called aten::relu"));
}

// LibTorch lists these operations as random although they are not outside of training.
TEST_F(OnnxValues, RandomOperationsThatAreOffHideNothing) {
  const std::vector<std::pair<const char*, nn::AnyModule>> modules = {
      {"rrelu", nn::AnyModule(nn::RReLU())},
      {"rrelu in place", nn::AnyModule(nn::RReLU(nn::RReLUOptions().inplace(true)))},
      {"dropout", nn::AnyModule(nn::Dropout())},
      {"alpha_dropout", nn::AnyModule(nn::AlphaDropout())},
      {"feature_alpha_dropout", nn::AnyModule(nn::FeatureAlphaDropout())}};
  for (auto [name, module] : modules) {
    module.ptr()->eval();
    for (const bool writes : {false, true}) {
      nn::Sequential net(nn::Linear(3, 3));
      const OnnxForward forward = [&](const std::vector<Tensor>& x) {
        Tensor y = module.forward<Tensor>(net->forward(x[0]).clone());
        if (writes) y.data_ptr<float>()[0] += 1;
        return std::vector<Tensor>{y + 1};
      };
      EXPECT_THAT(refusal_of(*net, forward, {torch::rand({2, 3})}),
                  HasSubstr(writes ? "of the recorded operations differs" : "nothing was refused"))
          << name;
    }
  }
}

// Each proposal but the last changes every input, and keeps its type and sizes.
TEST(OnnxProbes, ChangeEveryInput) {
  const std::vector<Tensor> inputs = {torch::tensor({5}),
                                      torch::zeros({2}, torch::kInt),
                                      torch::full({2, 2}, 255, torch::kByte),
                                      torch::tensor({true, true}),
                                      torch::tensor(false),
                                      torch::zeros({3}),
                                      torch::ones({2}, torch::kDouble),
                                      torch::full({2}, 0.5, torch::kHalf)};
  for (const int number : {0, 1}) {
    const auto proposals = onnx::with_other_values(inputs, number);
    for (const Tensor& other : proposals[0]) EXPECT_GT(other.numel(), 0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t p = 0; p < proposals.size(); ++p) {
        EXPECT_EQ(proposals[p][i].scalar_type(), inputs[i].scalar_type());
        EXPECT_EQ(proposals[p][i].sizes(), inputs[i].sizes());
      }
      EXPECT_FALSE(proposals[0][i].equal(inputs[i])) << "input " << i << ", number " << number;
    }
  }
}

// Indices stay at or above zero, and those of the second and fourth proposal within their range.
TEST(OnnxProbes, KeepWholeNumbersNearTheExample) {
  using Numbers = std::vector<std::int64_t>;
  struct Case {
    Numbers example;
    int number;
    Numbers free;
    Numbers within;
    Numbers order;
  };
  const Case cases[] = {{{0, 3}, 0, {0, 2}, {0, 0}, {3, 0}},
                        {{0, 3}, 1, {1, 4}, {3, 3}, {0, 3}},
                        {{-1, 3, 5}, 0, {-2, 2, 4}, {-1, -1, -1}, {5, -1, 3}},
                        {{-1, 3, 5}, 1, {0, 4, 6}, {5, 5, 5}, {3, 5, -1}},
                        {{3, 3}, 0, {2, 2}, {2, 2}, {3, 3}},
                        {{3, 3}, 1, {4, 4}, {2, 2}, {3, 3}},
                        {{0, 0}, 0, {1, 1}, {1, 1}, {0, 0}},
                        {{0, 0}, 1, {1, 1}, {1, 1}, {0, 0}}};
  for (const Case& each : cases) {
    const auto proposals = onnx::with_other_values({torch::tensor(each.example)}, each.number);
    ASSERT_EQ(proposals.size(), 5U);
    const Numbers* const expected[] = {&each.free, &each.within, &each.order, &each.within,
                                       &each.order};
    for (std::size_t p = 0; p < proposals.size(); ++p) {
      EXPECT_TRUE(proposals[p][0].equal(torch::tensor(*expected[p])))
          << "proposal " << p << " is " << proposals[p][0];
    }
  }
}

// Each sample is taken in turn; inputs without a batch stay.
TEST(OnnxProbes, RepeatTheSamplesOfTheExample) {
  const Tensor rows = torch::arange(6).view({2, 3});
  const std::vector<Tensor> inputs = {rows, rows.t(), rows, torch::tensor(4)};
  const auto more = onnx::with_batch(inputs, {0, 1, -1, -1}, 5);
  const Tensor expected = torch::tensor({{0, 1, 2}, {3, 4, 5}, {0, 1, 2}, {3, 4, 5}, {0, 1, 2}});
  ASSERT_EQ(more.size(), 4U);
  EXPECT_TRUE(more[0].equal(expected)) << more[0];
  EXPECT_TRUE(more[1].equal(expected.t())) << more[1];
  EXPECT_TRUE(more[2].equal(rows)) << more[2];
  EXPECT_TRUE(more[3].equal(torch::tensor(4))) << more[3];
  EXPECT_TRUE(onnx::with_batch({rows}, {0}, 1)[0].equal(rows.slice(0, 0, 1)));
}

TEST(OnnxComparison, TellsTensorsApart) {
  const Tensor nan = torch::tensor({std::nanf(""), 1.0F});
  const Tensor whole = torch::tensor({1, 2});
  const Tensor complex = at::complex(nan.nan_to_num(), nan.nan_to_num());
  const std::pair<Tensor, Tensor> alike[] = {{nan, nan.clone()},
                                             {whole, whole.clone()},
                                             {complex, complex.clone()},
                                             {Tensor(), Tensor()},
                                             {nan.view({1, 2}).t(), nan.view({2, 1})},
                                             {torch::empty({0, 2}), torch::empty({0, 2})}};
  for (const auto& [a, b] : alike) EXPECT_TRUE(onnx::same_tensor(a, b)) << a << b;
  const std::pair<Tensor, Tensor> unlike[] = {{nan, Tensor()},
                                              {Tensor(), nan},
                                              {nan, nan.to(torch::kDouble)},
                                              {nan, nan.flip(0)},
                                              {nan, nan.view({1, 2})},
                                              {whole, whole.to(torch::kInt)},
                                              {whole, whole + 1},
                                              {complex, complex.conj()},
                                              {torch::empty({0, 2}), torch::empty({0, 3})},
                                              {torch::zeros({1}), torch::full({1}, 1e-30)}};
  for (const auto& [a, b] : unlike) EXPECT_FALSE(onnx::same_tensor(a, b)) << a << b;
}

// Infinity and NaN are no scale.
TEST(OnnxProbes, TakeTheirScaleFromFiniteNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor numbers = torch::tensor({infinity, -infinity, std::nanf(""), 2.0F});
  const Tensor drawn = onnx::with_other_values({numbers}, 1)[0][0];
  EXPECT_LT(drawn.abs().max().item<float>(), 100) << drawn;
  const Tensor zeros = torch::tensor({infinity, 0.0F});
  EXPECT_EQ(onnx::with_other_values({zeros}, 0)[0][0][1].item<float>(), -1);
  for (const int number : {0, 1}) {
    const Tensor within = onnx::with_other_values({numbers}, number)[3][0];
    EXPECT_GE(within.min().item<float>(), 0) << within;
    EXPECT_LE(within.max().item<float>(), 2) << within;
  }
}

TEST(OnnxProbes, TakeEmptyInputs) {
  const std::vector<Tensor> inputs = {torch::empty({0, 2}), torch::empty({0}, torch::kLong),
                                      torch::empty({2, 0}, torch::kBool)};
  for (const int number : {0, 1}) {
    for (const auto& proposal : onnx::with_other_values(inputs, number)) {
      ASSERT_EQ(proposal.size(), inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(proposal[i].sizes(), inputs[i].sizes());
        EXPECT_EQ(proposal[i].scalar_type(), inputs[i].scalar_type());
      }
    }
  }
}

TEST(OnnxProbes, ChangeTruthsAndNumbers) {
  const Tensor truths = torch::tensor({true, true, false});
  const Tensor numbers = torch::tensor({0.0F, 2.0F, -3.0F});
  const auto first = onnx::with_other_values({truths, numbers}, 0);
  const auto second = onnx::with_other_values({truths, numbers}, 1);
  EXPECT_TRUE(first[0][0].equal(torch::tensor({false, false, true})));
  for (const std::size_t p : {1, 3}) {
    EXPECT_TRUE(first[p][0].equal(torch::tensor({true, false, false}))) << p;
  }
  for (const std::size_t p : {0, 1, 3}) {
    EXPECT_TRUE(second[p][0].equal(torch::tensor({false, true, true}))) << p;
  }
  for (const std::size_t p : {0, 1, 2}) {
    EXPECT_TRUE(first[p][1].equal(torch::tensor({-3.0F, -8.0F, 12.0F}))) << p;
  }
  EXPECT_TRUE(first[4][1].equal(torch::tensor({-3.0F, 0.0F, 2.0F})));
  for (const auto& proposals : {first, second}) {
    EXPECT_GE(proposals[3][1].min().item<float>(), -3);
    EXPECT_LE(proposals[3][1].max().item<float>(), 2);
  }
}

}  // namespace
}  // namespace lockstep
