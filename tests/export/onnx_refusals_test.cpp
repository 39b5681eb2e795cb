// Whatever a trace cannot capture must be rejected with its location, and never become a constant
// in the model.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;
using torch::Tensor;

// A convolution conv1 and a layer fc, with user code between and after them.
class UserNetImpl : public nn::Module {
 public:
  using Code = std::function<Tensor(UserNetImpl& net, const Tensor& features)>;

  explicit UserNetImpl(Code code) : code_(std::move(code)) {
    conv1 = register_module("conv1", nn::Conv2d(1, 2, 3));
    fc = register_module("fc", nn::Linear(8, 3));
    scale = register_parameter("scale", torch::ones({1}));
    counter = register_buffer("counter", torch::zeros({1}));
  }
  Tensor forward(const Tensor& x) { return code_(*this, conv1->forward(x)); }

  nn::Conv2d conv1{nullptr};
  nn::Linear fc{nullptr};
  Tensor scale;
  Tensor counter;

 private:
  Code code_;
};
TORCH_MODULE(UserNet);

class OnnxRefusals : public ::testing::Test {
 protected:
  std::string refusal(UserNetImpl::Code code, const OnnxExportOptions& options = {}) {
    torch::manual_seed(1);
    UserNet net(std::move(code));
    {
      const torch::NoGradGuard no_grad;
      net->fc->bias.zero_();
      net->conv1->bias.zero_();
    }
    try {
      export_onnx(net, {torch::rand({2, 1, 4, 4}) + 0.1}, folder / "net.onnx", options);
    } catch (const ConfigError& error) {
      EXPECT_FALSE(std::filesystem::exists(folder / "net.onnx"));
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryDirectory folder;
};

TEST_F(OnnxRefusals, ABatchSizeInAView) {
  const UserNetImpl::Code code = [](UserNetImpl& net, const Tensor& x) {
    return net.fc(x.relu().view({x.size(0), -1}));
  };
  EXPECT_THAT(refusal(code),
              AllOf(HasSubstr("aten::view with 2"),
                    HasSubstr("after conv1 (parameter conv1.weight)"), HasSubstr("x.flatten(1)")));
  EXPECT_EQ(refusal(code, {.dynamic_batch = false}), "nothing was refused");
  std::filesystem::remove(folder / "net.onnx");
  EXPECT_EQ(refusal(code, {.follow_batch = true}), "nothing was refused");
  EXPECT_EQ(testing_support::read_model(folder / "net.onnx").sizes.at("output"), "batch,3");
}

TEST_F(OnnxRefusals, ABatchSizeThatFollowsNoLine) {
  const auto message = refusal(
      [](UserNetImpl& net, const Tensor& x) {
        const std::int64_t rows = x.size(0) * x.size(0);
        return net.fc(x.flatten(1)).sum() + torch::ones({rows, 1}).sum();
      },
      {.follow_batch = true});
  EXPECT_THAT(message, HasSubstr("aten::ones with 4"));
}

TEST_F(OnnxRefusals, AnAverageByTheBatchAsANumber) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) / static_cast<double>(x.size(0));
              }),
              AllOf(HasSubstr("aten::div with 2"), HasSubstr("after fc (parameter fc.weight)")));
}

// follow_batch() is only for sizes: a number used in arithmetic would be a constant in the model.
TEST_F(OnnxRefusals, ANumberThatFollowsTheBatchInArithmetic) {
  const std::vector<UserNetImpl::Code> codes = {
      [](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).div(x.size(0)); },
      [](UserNetImpl& net, const Tensor& x) {
        const Tensor y = net.fc(x.flatten(1));
        return y + torch::full({x.size(0), 3}, x.size(0), torch::kFloat);
      },
      [](UserNetImpl& net, const Tensor& x) {
        const Tensor y = net.fc(x.flatten(1));
        return at::add(y, y.relu(), x.size(0));
      }};
  for (const auto& code : codes) {
    EXPECT_THAT(refusal(code, {.follow_batch = true}), HasSubstr("an argument follows the batch"));
  }
}

// No parameter is used between the attention and the division.
TEST_F(OnnxRefusals, AnAverageByTheBatchBehindAttention) {
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(4, 2));
  attention->eval();
  const auto message = [&](bool divides) -> std::string {
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      const Tensor y = std::get<0>(attention->forward(x[0], x[0], x[0]));
      return std::vector<Tensor>{divides ? y.div(x[0].size(1)) : y};
    };
    try {
      export_onnx(*attention, forward, {torch::rand({3, 2, 4})}, folder / "net.onnx",
                  {.batch_dimensions = {1}});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_EQ(message(false), "nothing was refused");
  EXPECT_THAT(message(true), HasSubstr("aten::div with 2"));
}

TEST_F(OnnxRefusals, OverloadsWithOtherArguments) {
  EXPECT_THAT(
      refusal([](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).round(2); }),
      AllOf(HasSubstr("aten::round"), HasSubstr("its form decimals")));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)).norm(2, torch::kDouble);
              }),
              AllOf(HasSubstr("aten::norm"), HasSubstr("its form ScalarOpt_dtype")));
}

TEST_F(OnnxRefusals, NumbersThatChangeAnOperator) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return at::add(y > 0, y > 1, 0);
              }),
              AllOf(HasSubstr("aten::add"), HasSubstr("booleans times false")));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return at::hardtanh(net.fc(x.flatten(1)), std::nan(""), 1);
              }),
              AllOf(HasSubstr("aten::hardtanh"), HasSubstr("a limit that is not a number")));
}

// onnxruntime computes these in float64, and a product along the batch has no other form.
TEST_F(OnnxRefusals, SumsAndProductsOfWholeNumbersInFloat64) {
  struct Case {
    std::function<Tensor(const Tensor& y)> code;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](const Tensor& y) { return at::einsum("bi->b", {y}); }, "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("bi, bj -> bi", {y, y}); },
       "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("ii", {y.t().mm(y)}); }, "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("bi,k", {y, y[0]}); }, "nothing was refused"},
      {[](const Tensor& y) { return at::einsum("bi,bi->b", {y, y}); }, "nothing was refused"},
      {[](const Tensor& y) { return y.prod(0); }, "a product of whole numbers"},
      {[](const Tensor& y) { return y.prod(1); }, "nothing was refused"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_THAT(refusal([&](UserNetImpl& net, const Tensor& x) {
                  return cases[i].code(net.fc(x.flatten(1)).to(torch::kLong));
                }),
                HasSubstr(cases[i].message))
        << i;
    std::filesystem::remove(folder / "net.onnx");
  }
}

TEST_F(OnnxRefusals, IndicesOfWindowsWithWidePadding) {
  EXPECT_THAT(
      refusal([](UserNetImpl&, const Tensor& x) {
        const Tensor image = x.repeat({1, 1, 3, 3});
        return std::get<1>(at::max_pool2d_with_indices(image, 2, 4, 0, 4, /*ceil_mode=*/true));
      }),
      AllOf(HasSubstr("aten::max_pool2d_with_indices"),
            HasSubstr("indices of windows whose padding is as wide as the kernel")));
}

TEST_F(OnnxRefusals, AViewAsAnotherType) {
  EXPECT_EQ(
      refusal(
          [](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).view(torch::kInt); }),
      "export_onnx: LibTorch's tracer cannot record the form of aten::view that forward() "
      "calls after fc (parameter fc.weight), such as view(dtype); compute the same with other "
      "operations");
}

TEST_F(OnnxRefusals, ARankThatChangesWithTheBatch) {
  torch::manual_seed(1);
  UserNet net([](UserNetImpl& self, const Tensor& x) { return self.fc(x.flatten(1)).squeeze(); });
  try {
    export_onnx(net, {torch::rand({1, 1, 4, 4})}, folder / "net.onnx");
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aten::squeeze"),
                                    HasSubstr("has 1 dimensions for batch 1 and 2 for batch 2")));
  }
}

TEST_F(OnnxRefusals, AFixedEndBehindAllRecordedBatches) {
  EXPECT_THAT(
      refusal(
          [](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).slice(0, 0, 100); }),
      AllOf(HasSubstr("with a batch of 130, forward() gets different sizes in the result of "
                      "aten::slice after fc (parameter fc.weight), [100, 3] where smaller batches "
                      "imply [130, 3]: each size must be a multiple of the batch"),
            HasSubstr("dynamic_batch = false")));
  // No rehearsal reaches this end.
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)).slice(0, 0, 2'000'000);
              }),
              AllOf(HasSubstr("aten::slice"), HasSubstr("a fixed end, 2000000")));
}

TEST_F(OnnxRefusals, ABranchOnData) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y.sum().item<float>() > 0 ? y.relu() : y.sigmoid() * 2;
              }),
              AllOf(HasSubstr("takes a different path with other values"),
                    HasSubstr("after fc (parameter fc.weight)"), HasSubstr("torch::where()")));
}

// None of the runs takes the branch, so that only reading the value reveals it.
TEST_F(OnnxRefusals, ABranchThatNoRunTakes) {
  const UserNetImpl::Code code = [](UserNetImpl& net, const Tensor& x) {
    const Tensor y = net.fc(x.flatten(1));
    return y.abs().sum().item<float>() > 1e9 ? y.relu() : y;
  };
  EXPECT_THAT(refusal(code), AllOf(HasSubstr("reads a value out of a tensor (item()) after fc"),
                                   HasSubstr("set allow_reads")));
  EXPECT_EQ(refusal(code, {.allow_reads = true}), "nothing was refused");
}

// A parameter's value is the same for all inputs.
TEST_F(OnnxRefusals, NotTheReadOfAParameter) {
  EXPECT_EQ(refusal([](UserNetImpl& net, const Tensor& x) {
              return net.fc(x.flatten(1)) * net.scale.mul(2).item<float>();
            }),
            "nothing was refused");
}

TEST_F(OnnxRefusals, ANumberComputedFromData) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y / y.abs().max().item<float>();
              }),
              AllOf(HasSubstr("from the values of its inputs"), HasSubstr("aten::div"),
                    HasSubstr("after fc (parameter fc.weight)")));
}

TEST_F(OnnxRefusals, ATensorComputedOutsideOfLibTorch) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y + torch::tensor({y[0][0].item<float>()});
              }),
              AllOf(HasSubstr("aten::add with a tensor [1]"), HasSubstr("after fc")));
}

TEST_F(OnnxRefusals, MemoryWrittenBehindTheTracersBack) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                Tensor y = net.fc(x.flatten(1)).clone();
                auto* const values = y.data_ptr<float>();
                for (std::int64_t i = 0; i < y.numel(); ++i) values[i] *= values[i];
                return y + 1;
              }),
              AllOf(HasSubstr("output 0 of the recorded operations differs"),
                    HasSubstr("first in the result of aten::add after fc (parameter fc.weight)")));
}

// Records a run's inputs without the tracer noticing.
struct SeenInputs {
  std::int64_t batch = 0;
  bool all_positive = true;
  bool all_negative = true;
};

SeenInputs seen(const Tensor& x) {
  SeenInputs result{.batch = x.size(0)};
  const auto* const values = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    result.all_positive = result.all_positive && values[i] > 0;
    result.all_negative = result.all_negative && values[i] < 0;
  }
  return result;
}

// Each run alone shows only what forward() does with its own inputs.
TEST_F(OnnxRefusals, MemoryWrittenInSomeRunsOnly) {
  struct Case {
    std::string condition{};
    std::function<bool(const SeenInputs& inputs)> writes{};
    bool dynamic_batch = true;
  };
  const std::vector<Case> cases = {
      {"the example", [](const SeenInputs& x) { return x.all_positive; }, false},
      {"other values", [](const SeenInputs& x) { return x.all_negative; }},
      {"other values", [](const SeenInputs& x) { return !x.all_positive && !x.all_negative; }},
      {"a batch of 3", [](const SeenInputs& x) { return x.batch > 2; }},
      {"a batch of 5", [](const SeenInputs& x) { return x.batch > 3; }},
      {"", [](const SeenInputs& x) { return x.batch > 100; }}};
  for (const Case& each : cases) {
    nn::Sequential net(nn::Linear(3, 3));
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      Tensor y = net->forward(x[0]).clone();
      if (each.writes(seen(x[0]))) y.data_ptr<float>()[0] += 1;
      return std::vector<Tensor>{y.relu() + y};
    };
    std::string message = "nothing was refused";
    try {
      export_onnx(*net, forward, {torch::rand({2, 3}) + 0.1}, folder / "net.onnx",
                  {.dynamic_batch = each.dynamic_batch});
    } catch (const ConfigError& error) {
      message = error.what();
    }
    if (each.condition.empty()) {
      EXPECT_THAT(message, HasSubstr("accesses the memory of a tensor"));
      continue;
    }
    EXPECT_THAT(message,
                HasSubstr("output 0 of the recorded operations differs from forward()'s with " +
                          each.condition + ", first in the result of "));
    EXPECT_THAT(message, HasSubstr("after 0 (parameter 0.weight)"));
  }
}

TEST_F(OnnxRefusals, MemoryWrittenBehindTheLastOperation) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                Tensor y = net.fc(x.flatten(1)).relu_();
                y.data_ptr<float>()[0] -= 1;
                return y;
              }),
              HasSubstr("differs from forward()'s with the example, first behind the last "
                        "operation, after fc (parameter fc.weight)"));
}

// The tracer records the tensor as a constant, which is the same in all recordings.
TEST_F(OnnxRefusals, ATensorThatEveryRunFills) {
  Tensor mean = torch::zeros({1});
  EXPECT_THAT(refusal([mean](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                mean.data_ptr<float>()[0] = y.data_ptr<float>()[0];
                return y - mean;
              }),
              AllOf(HasSubstr("differs from forward()'s with other values"),
                    HasSubstr("in the result of aten::sub after fc (parameter fc.weight)")));
}

TEST_F(OnnxRefusals, AnOutputFromElsewhere) {
  std::vector<float> values(4, 1);
  EXPECT_THAT(refusal([&values](UserNetImpl&, const Tensor&) {
                return torch::from_blob(values.data(), {2, 2});
              }),
              HasSubstr("is not computed from the inputs"));
}

TEST_F(OnnxRefusals, AWriteThroughAView) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                Tensor y = net.fc(x.flatten(1));
                y.slice(1, 0, 1).add_(1);
                return y * 2;
              }),
              AllOf(HasSubstr("aten::add_"), HasSubstr("used afterwards by another name"),
                    HasSubstr("after fc")));
}

// The parts of a tensor that chunk() and its like return share nothing with each other.
TEST_F(OnnxRefusals, WritesToPartsOfATensor) {
  using Parts = std::function<std::vector<Tensor>(const Tensor& y)>;
  const std::vector<std::pair<const char*, Parts>> separate = {
      {"chunk", [](const Tensor& y) { return y.chunk(3, 1); }},
      {"unsafe_chunk", [](const Tensor& y) { return y.unsafe_chunk(3, 1); }},
      {"split", [](const Tensor& y) { return y.split(1, 1); }},
      {"split_with_sizes", [](const Tensor& y) { return y.split_with_sizes({1, 2}, 1); }},
      {"tensor_split", [](const Tensor& y) { return y.tensor_split(3, 1); }},
      {"unbind", [](const Tensor& y) { return y.unbind(1); }},
      {"parts of a part", [](const Tensor& y) { return y.chunk(2, 1)[0].chunk(2, 1); }},
      {"parts of a transposed tensor", [](const Tensor& y) { return y.t().chunk(3, 0); }}};
  for (const auto& [name, parts] : separate) {
    const auto write = [parts = parts](bool reads_the_whole) -> UserNetImpl::Code {
      return [=](UserNetImpl& net, const Tensor& x) {
        const Tensor y = net.fc(x.flatten(1));
        const std::vector<Tensor> each = parts(y);
        each[0].sigmoid_();
        each[1].tanh_().mul_(2);
        return reads_the_whole ? y * 2 : each[0] - each[1];
      };
    };
    EXPECT_EQ(refusal(write(false)), "nothing was refused") << name;
    std::filesystem::remove(folder / "net.onnx");
    EXPECT_THAT(refusal(write(true)), HasSubstr("used afterwards by another name")) << name;
  }
  const std::vector<std::pair<const char*, Parts>> shared = {
      {"two lists of parts",
       [](const Tensor& y) { return std::vector<Tensor>{y.chunk(3, 1)[0], y.chunk(3, 1)[0]}; }},
      {"a part and its own part",
       [](const Tensor& y) {
         const Tensor first = y.chunk(2, 1)[0];
         return std::vector<Tensor>{first, first.chunk(2, 1)[0]};
       }},
      {"parts of an expanded tensor",
       [](const Tensor& y) { return y.unsqueeze(0).expand({2, -1, -1}).unbind(0); }}};
  for (const auto& [name, parts] : shared) {
    EXPECT_THAT(refusal([parts = parts](UserNetImpl& net, const Tensor& x) {
                  const std::vector<Tensor> each = parts(net.fc(x.flatten(1)));
                  each[0].sigmoid_();
                  return each[1] * 2;
                }),
                HasSubstr("used afterwards by another name"))
        << name;
  }
}

TEST_F(OnnxRefusals, AWriteToABufferThatIsTakenBack) {
  UserNet net([](UserNetImpl& self, const Tensor& x) {
    self.counter.add_(1);
    return self.fc(x.flatten(1)) * self.counter;
  });
  try {
    export_onnx(net, {torch::rand({2, 1, 4, 4})}, folder / "net.onnx");
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("writes to counter"));
  }
  EXPECT_EQ(net->counter.item<float>(), 0);
}

TEST_F(OnnxRefusals, AllOperatorsWithoutALoweringAtOnce) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.digamma().flatten(1));
                return at::polygamma(2, y.digamma());
              }),
              AllOf(HasSubstr("cannot export 2 operators"),
                    HasSubstr("aten::digamma [after conv1 (parameter conv1.weight); after fc "
                              "(parameter fc.weight)]"),
                    HasSubstr("aten::polygamma [after fc (parameter fc.weight)]")));
}

// Operations on parameters alone make a parameter of another form.
TEST_F(OnnxRefusals, AnOperatorWithAParameterOfAnotherForm) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor sizes = net.fc->weight.t().abs().mean(0);
                return at::igamma(net.fc(x.flatten(1)).abs(), sizes);
              }),
              HasSubstr("aten::igamma [after fc (parameter fc.weight)]"));
}

TEST_F(OnnxRefusals, RandomNumbers) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return at::dropout(net.fc(x.flatten(1)), 0.5, /*train=*/true);
              }),
              HasSubstr("dropout is on"));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) + torch::rand({3});
              }),
              HasSubstr("aten::rand"));
}

TEST_F(OnnxRefusals, ATensorThatIsNoParameterAndRequiresAGradient) {
  const Tensor hidden = torch::ones({3}, torch::requires_grad());
  EXPECT_THAT(refusal([hidden](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) * hidden;
              }),
              HasSubstr("register_parameter()"));
}

// The statistics of a batch depend on all its samples.
TEST_F(OnnxRefusals, NormalisationByTheBatchItself) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false).flatten(1));
              }),
              AllOf(HasSubstr("aten::batch_norm"), HasSubstr("own statistics")));
}

// Each of these operators has a lowering, but not for such arguments; `x` is [2, 2, 2, 2].
TEST_F(OnnxRefusals, ArgumentsWithoutALowering) {
  struct Case {
    const char* op;
    const char* reason;
    UserNetImpl::Code code{};
    int opset = 20;
  };
  const Case cases[] = {
      {"aten::rrelu", "the random slope of training cannot be exported",
       [](UserNetImpl&, const Tensor& x) { return at::rrelu(x, 0.1, 0.3, /*training=*/true); }},
      {"aten::avg_pool2d", "ceil_mode together with padding or divisor_override",
       [](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 1, /*ceil_mode=*/true);
       }},
      {"aten::avg_pool2d", "ceil_mode together with padding or divisor_override",
       [](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 0, /*ceil_mode=*/true, true, 3);
       }},
      {"aten::adaptive_max_pool2d", "its indices are used",
       [](UserNetImpl&, const Tensor& x) {
         return std::get<1>(at::adaptive_max_pool2d(x, {1, 1}));
       }},
      {"aten::scatter", "reduce is not lowered; use scatter_add()",
       [](UserNetImpl&, const Tensor& x) {
         const Tensor y = x.flatten(1);
         return at::scatter(y, 1, y.argmax(1, /*keepdim=*/true), y, "add");
       }},
      {"aten::tensor_split", "parts that overlap",
       [](UserNetImpl&, const Tensor& x) { return x.tensor_split(at::IntArrayRef({2, 1}), 3)[2]; }},
      {"aten::col2im", "it needs opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) {
         return at::col2im(x.flatten(2), {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1});
       },
       17},
      {"aten::bitwise_and", "whole numbers need opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_and(3); }, 17},
      {"aten::bitwise_not", "whole numbers need opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_not(); }, 17},
      {"aten::pow", "a power of whole numbers needs a known exponent of at least 1",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).pow(0); }},
      {"aten::nan_to_num", "it is lowered for float and double",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kHalf).nan_to_num(); }},
      {"aten::pixel_shuffle", "an input of 5 dimensions, expected 3 or 4",
       [](UserNetImpl&, const Tensor& x) {
         return at::pixel_shuffle(x.repeat({1, 2, 1, 1}).unsqueeze(1), 2);
       }},
      {"aten::pixel_unshuffle", "an input of 5 dimensions, expected 3 or 4",
       [](UserNetImpl&, const Tensor& x) { return at::pixel_unshuffle(x.unsqueeze(1), 2); }},
      {"aten::max_pool2d_with_indices", "an input without a batch dimension",
       [](UserNetImpl&, const Tensor& x) {
         return std::get<1>(at::max_pool2d_with_indices(x.flatten(0, 1), 2));
       }},
      {"aten::repeat_interleave", "repeats must be a number",
       [](UserNetImpl&, const Tensor& x) {
         return x.repeat_interleave(torch::tensor({1, 2}), /*dim=*/1);
       }},
      {"aten::scaled_dot_product_attention", "dropout_p must be 0, got 0.5",
       [](UserNetImpl&, const Tensor& x) {
         return at::scaled_dot_product_attention(x, x, x, {}, 0.5);
       }},
      {"aten::scaled_dot_product_attention", "enable_gqa",
       [](UserNetImpl&, const Tensor& x) {
         return at::scaled_dot_product_attention(x, x, x, {}, 0, /*is_causal=*/false, std::nullopt,
                                                 /*enable_gqa=*/true);
       }},
      {"aten::batch_norm", "its running statistics are not buffers",
       [](UserNetImpl&, const Tensor& x) {
         const Tensor mean = x.mean({0, 2, 3});
         return at::batch_norm(x, {}, {}, mean, mean.abs() + 1, false, 0.1, 1e-5, false);
       }}};
  for (const Case& each : cases) {
    EXPECT_THAT(refusal(each.code, {.opset = each.opset}),
                AllOf(HasSubstr(each.op), HasSubstr(each.reason)));
  }
}

// An exported program notes the line of Python in the nodes of the trace.
TEST_F(OnnxRefusals, NamesTheNotedLineOfPython) {
  const std::string text = refusal([](UserNetImpl&, const Tensor& x) {
    Tensor y = at::special_bessel_j0(x);
    const auto& state = torch::jit::tracer::getTracingState();
    if (state != nullptr && state->hasValue(y)) {
      const std::string line = "net.py:12: x = f(x)";
      state->getValue(y)->node()->setSourceRange(
          torch::jit::SourceRange(std::make_shared<torch::jit::Source>(line), 0, line.size()));
    }
    return y;
  });
  EXPECT_THAT(text, HasSubstr("aten::special_bessel_j0 [after conv1 (parameter conv1.weight), "
                              "net.py:12: x = f(x)]"));
}

// Arguments next to those have a lowering.
TEST_F(OnnxRefusals, NotTheArgumentsNextToThose) {
  const std::vector<std::pair<UserNetImpl::Code, int>> cases = {
      {[](UserNetImpl&, const Tensor& x) { return at::rrelu(x, 0.1, 0.3); }, 20},
      {[](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 0, /*ceil_mode=*/true);
       },
       20},
      {[](UserNetImpl&, const Tensor& x) {
         return std::get<0>(at::adaptive_max_pool2d(x, {1, 1}));
       },
       20},
      {[](UserNetImpl&, const Tensor& x) {
         return at::col2im(x.flatten(2), {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1});
       },
       18},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_and(3); }, 18},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_not(); }, 18},
      {[](UserNetImpl&, const Tensor& x) { return x.gt(0.1).bitwise_not(); }, 17},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).pow(1); }, 20}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(refusal(cases[i].first, {.opset = cases[i].second}), "nothing was refused") << i;
    std::filesystem::remove(folder / "net.onnx");
  }
}

}  // namespace
}  // namespace lockstep
