// Whatever a trace cannot capture must be rejected with its location, and never become a constant
// in the model.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>
#include <tests/export/refusals/user_net.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::UserNet;
using testing_support::UserNetImpl;
using torch::Tensor;

class TraceRefusals : public testing_support::OnnxRefusals {};

TEST_F(TraceRefusals, ABatchSizeInAView) {
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

TEST_F(TraceRefusals, ABatchSizeThatFollowsNoLine) {
  const auto message = refusal(
      [](UserNetImpl& net, const Tensor& x) {
        const std::int64_t rows = x.size(0) * x.size(0);
        return net.fc(x.flatten(1)).sum() + torch::ones({rows, 1}).sum();
      },
      {.follow_batch = true});
  EXPECT_THAT(message, HasSubstr("aten::ones with 4"));
}

TEST_F(TraceRefusals, AnAverageByTheBatchAsANumber) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) / static_cast<double>(x.size(0));
              }),
              AllOf(HasSubstr("aten::div with 2"), HasSubstr("after fc (parameter fc.weight)")));
}

// follow_batch() is only for sizes: a number used in arithmetic would be a constant in the model.
TEST_F(TraceRefusals, ANumberThatFollowsTheBatchInArithmetic) {
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
TEST_F(TraceRefusals, AnAverageByTheBatchBehindAttention) {
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

TEST_F(TraceRefusals, AViewAsAnotherType) {
  EXPECT_EQ(
      refusal(
          [](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).view(torch::kInt); }),
      "export_onnx: LibTorch's tracer cannot record the form of aten::view that forward() "
      "calls after fc (parameter fc.weight), such as view(dtype); compute the same with other "
      "operations");
}

TEST_F(TraceRefusals, ARankThatChangesWithTheBatch) {
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

TEST_F(TraceRefusals, AFixedEndBehindAllRecordedBatches) {
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

TEST_F(TraceRefusals, ABranchOnData) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y.sum().item<float>() > 0 ? y.relu() : y.sigmoid() * 2;
              }),
              AllOf(HasSubstr("takes a different path with other values"),
                    HasSubstr("after fc (parameter fc.weight)"), HasSubstr("torch::where()")));
}

// None of the runs takes the branch, so that only reading the value reveals it.
TEST_F(TraceRefusals, ABranchThatNoRunTakes) {
  const UserNetImpl::Code code = [](UserNetImpl& net, const Tensor& x) {
    const Tensor y = net.fc(x.flatten(1));
    return y.abs().sum().item<float>() > 1e9 ? y.relu() : y;
  };
  EXPECT_THAT(refusal(code), AllOf(HasSubstr("reads a value out of a tensor (item()) after fc"),
                                   HasSubstr("set allow_reads")));
  EXPECT_EQ(refusal(code, {.allow_reads = true}), "nothing was refused");
}

// A parameter's value is the same for all inputs.
TEST_F(TraceRefusals, NotTheReadOfAParameter) {
  EXPECT_EQ(refusal([](UserNetImpl& net, const Tensor& x) {
              return net.fc(x.flatten(1)) * net.scale.mul(2).item<float>();
            }),
            "nothing was refused");
}

TEST_F(TraceRefusals, ANumberComputedFromData) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y / y.abs().max().item<float>();
              }),
              AllOf(HasSubstr("from the values of its inputs"), HasSubstr("aten::div"),
                    HasSubstr("after fc (parameter fc.weight)")));
}

TEST_F(TraceRefusals, ATensorComputedOutsideOfLibTorch) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return y + torch::tensor({y[0][0].item<float>()});
              }),
              AllOf(HasSubstr("aten::add with a tensor [1]"), HasSubstr("after fc")));
}

TEST_F(TraceRefusals, MemoryWrittenBehindTheTracersBack) {
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
TEST_F(TraceRefusals, MemoryWrittenInSomeRunsOnly) {
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

TEST_F(TraceRefusals, MemoryWrittenBehindTheLastOperation) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                Tensor y = net.fc(x.flatten(1)).relu_();
                y.data_ptr<float>()[0] -= 1;
                return y;
              }),
              HasSubstr("differs from forward()'s with the example, first behind the last "
                        "operation, after fc (parameter fc.weight)"));
}

// The tracer records the tensor as a constant, which is the same in all recordings.
TEST_F(TraceRefusals, ATensorThatEveryRunFills) {
  Tensor mean = torch::zeros({1});
  EXPECT_THAT(refusal([mean](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                mean.data_ptr<float>()[0] = y.data_ptr<float>()[0];
                return y - mean;
              }),
              AllOf(HasSubstr("differs from forward()'s with other values"),
                    HasSubstr("in the result of aten::sub after fc (parameter fc.weight)")));
}

TEST_F(TraceRefusals, AnOutputFromElsewhere) {
  std::vector<float> values(4, 1);
  EXPECT_THAT(refusal([&values](UserNetImpl&, const Tensor&) {
                return torch::from_blob(values.data(), {2, 2});
              }),
              HasSubstr("is not computed from the inputs"));
}

TEST_F(TraceRefusals, AWriteThroughAView) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                Tensor y = net.fc(x.flatten(1));
                y.slice(1, 0, 1).add_(1);
                return y * 2;
              }),
              AllOf(HasSubstr("aten::add_"), HasSubstr("used afterwards by another name"),
                    HasSubstr("after fc")));
}

// The parts of a tensor that chunk() and its like return share nothing with each other.
TEST_F(TraceRefusals, WritesToPartsOfATensor) {
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

TEST_F(TraceRefusals, AWriteToABufferThatIsTakenBack) {
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

TEST_F(TraceRefusals, ATensorThatIsNoParameterAndRequiresAGradient) {
  const Tensor hidden = torch::ones({3}, torch::requires_grad());
  EXPECT_THAT(refusal([hidden](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) * hidden;
              }),
              HasSubstr("register_parameter()"));
}

}  // namespace
}  // namespace lockstep
