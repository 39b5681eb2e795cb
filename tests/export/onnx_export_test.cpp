#include <lockstep/export/onnx_export.h>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/version.h>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <tests/export/onnx_reader.h>
#include <tests/support/captured_log.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::read_model;
using testing_support::read_text;
using testing_support::ReadModel;
using testing_support::TemporaryDirectory;

std::vector<std::string> initializer_names(const ReadModel& model) {
  std::vector<std::string> names;
  for (const auto& [name, type] : model.initializers) names.push_back(name);
  return names;
}

// A convolution with batch normalisation, and a last layer.
nn::Sequential small_net() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).bias(false)), nn::BatchNorm2d(4),
                        nn::ReLU(), nn::Dropout(), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                        nn::Linear(4, 2));
}

class OnnxExportTest : public ::testing::Test {
 protected:
  ReadModel exported(nn::Sequential net, const OnnxExportOptions& options = {}) {
    export_onnx(net, {torch::randn({2, 3, 8, 8})}, path, options);
    return read_model(path);
  }

  TemporaryDirectory folder;
  const std::filesystem::path path = folder / "net.onnx";
};

TEST_F(OnnxExportTest, NamesInitializersAfterParameters) {
  const ReadModel model = exported(small_net(), {.fold_batch_norm = false});
  EXPECT_THAT(initializer_names(model),
              ElementsAre("0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight",
                          "6.bias", "6.weight"));
  EXPECT_THAT(model.operators, ElementsAre("Conv", "BatchNormalization", "Relu",
                                           "GlobalAveragePool", "Flatten", "Gemm"));
}

TEST_F(OnnxExportTest, FoldsBatchNormIntoTheConvolution) {
  const ReadModel model = exported(small_net());
  EXPECT_THAT(initializer_names(model), ElementsAre("0.bias", "0.weight", "6.bias", "6.weight"));
  EXPECT_THAT(model.operators, Not(Contains("BatchNormalization")));
}

// Folding replaces the convolution's weights, which other operations may use under another name.
TEST_F(OnnxExportTest, FoldingABatchNormKeepsWeightsThatAreStillUsed) {
  using Code = std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& weight)>;
  const torch::Tensor zeros = torch::zeros({4});
  const std::vector<std::pair<Code, Code>> cases = {
      {[](const auto& x, const auto& weight) { return at::conv2d(x, weight.contiguous()); },
       [](const auto& x, const auto& weight) { return at::conv2d(x, weight).relu(); }},
      {[](const auto& x, const auto& weight) { return at::conv2d(x, weight); },
       [](const auto& x, const auto& weight) {
         return at::conv2d(x, weight.to(torch::kFloat)).relu();
       }},
      {[=](const auto& x, const auto& weight) { return at::conv2d(x, weight, zeros); },
       [=](const auto& x, const auto& weight) {
         return at::conv2d(x.relu(), weight, torch::zeros({4})).relu() + x.mean();
       }}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const bool first : {true, false}) {
      nn::Sequential parts(nn::Conv2d(nn::Conv2dOptions(3, 4, 3)), nn::BatchNorm2d(4));
      const torch::Tensor weight = parts[0]->as<nn::Conv2d>()->weight;
      const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
        torch::Tensor other = first ? cases[i].second(x[0], weight) : torch::Tensor();
        const auto y = parts[1]->as<nn::BatchNorm2d>()->forward(cases[i].first(x[0], weight));
        if (!first) other = cases[i].second(x[0], weight);
        return std::vector<torch::Tensor>{y + other};
      };
      export_onnx(*parts, forward, {torch::randn({2, 3, 8, 8})}, path);
      const ReadModel model = read_model(path);
      EXPECT_THAT(model.operators, Not(Contains("BatchNormalization"))) << i;
      EXPECT_THAT(model.unknown_inputs, ::testing::IsEmpty()) << i;
    }
  }
}

// The convolution's result is used twice, so that the normalisation must not be folded into it.
TEST_F(OnnxExportTest, KeepsABatchNormWhoseInputIsUsedElsewhere) {
  nn::Sequential parts(nn::Conv2d(nn::Conv2dOptions(3, 4, 3)), nn::BatchNorm2d(4));
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    const auto y = parts[0]->as<nn::Conv2d>()->forward(x[0]);
    return std::vector<torch::Tensor>{parts[1]->as<nn::BatchNorm2d>()->forward(y) + y};
  };
  export_onnx(*parts, forward, {torch::randn({2, 3, 8, 8})}, path);
  EXPECT_THAT(read_model(path).operators, ElementsAre("Conv", "BatchNormalization", "Add"));
}

TEST_F(OnnxExportTest, DynamicBatchIsTheSymbolBatch) {
  const ReadModel dynamic = exported(small_net());
  EXPECT_EQ(dynamic.sizes.at("input"), "batch,3,8,8");
  EXPECT_EQ(dynamic.sizes.at("output"), "batch,2");
  const ReadModel fixed = exported(small_net(), {.dynamic_batch = false});
  EXPECT_EQ(fixed.sizes.at("input"), "2,3,8,8");
  EXPECT_EQ(fixed.sizes.at("output"), "2,2");
}

TEST_F(OnnxExportTest, HalfStoresFloat16AndKeepsInputsAndOutputs) {
  constexpr std::int32_t kFloat16 = 10;
  const ReadModel model = exported(small_net(), {.half = true});
  for (const auto& [name, type] : model.initializers) EXPECT_EQ(type, kFloat16) << name;
  EXPECT_EQ(model.operators.front(), "Cast");
  EXPECT_EQ(model.operators.back(), "Cast");
}

// The squares of values above 255 overflow float16.
TEST_F(OnnxExportTest, HalfAddsUpSquaresInFloat32) {
  nn::Sequential empty;
  const OnnxForward forward = [](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{at::rms_norm(x[0], {8})};
  };
  export_onnx(*empty, forward, {torch::randn({2, 8})}, path, {.half = true});
  EXPECT_THAT(read_model(path).operators, ElementsAre("Cast", "Cast", "Mul", "ReduceMean", "Add",
                                                      "Sqrt", "Div", "Cast", "Cast"));
}

// Float16 holds numbers between 6e-8 and 65504, with full precision from 6e-5 on.
TEST_F(OnnxExportTest, HalfKeepsOperationsWithConstantsBeyondItsRangeInFloat32) {
  constexpr std::int32_t kFloat32 = 1;
  const torch::Tensor large = torch::full({4}, 1e6);
  const torch::Tensor mixed = torch::tensor({1.0F, 1e-12F, 1.0F, 1.0F});
  using Code = std::function<torch::Tensor(const torch::Tensor&)>;
  const std::vector<std::pair<const char*, Code>> cases = {
      {"clamp_min", [](const torch::Tensor& x) { return x.clamp_min(1e-12); }},
      {"add", [](const torch::Tensor& x) { return x + 1e-8; }},
      {"mul", [](const torch::Tensor& x) { return x * 1e6; }},
      {"masked_fill", [](const torch::Tensor& x) { return x.masked_fill(x.isnan(), -1e9); }},
      {"where", [](const torch::Tensor& x) { return torch::where(x.isnan(), x, 1e-30); }},
      {"div", [=](const torch::Tensor& x) { return x / large; }},
      {"maximum", [=](const torch::Tensor& x) { return at::maximum(x, mixed); }},
      {"compare", [](const torch::Tensor& x) { return (x > 1e-10).to(torch::kFloat); }},
      {"pad", [](const torch::Tensor& x) { return at::constant_pad_nd(x, {1, 1}, -1e9); }},
      {"threshold", [](const torch::Tensor& x) { return at::threshold(x, 1e-9, 1e5); }}};
  for (const auto& [name, code] : cases) {
    nn::Sequential empty;
    const OnnxForward forward = [code = code](const std::vector<torch::Tensor>& x) {
      return std::vector<torch::Tensor>{code(x[0])};
    };
    export_onnx(*empty, forward, {torch::randn({2, 4})}, path, {.half = true});
    const ReadModel model = read_model(path);
    for (const auto& [constant, type] : model.initializers) {
      constexpr std::int32_t kInt64 = 7;
      EXPECT_TRUE(type == kFloat32 || type == kInt64) << name << ' ' << constant << ' ' << type;
    }
  }
}

// take_along_dim() reads the batch to expand its indices, before it finds its table to be too large
// for float16 and is lowered again.
TEST_F(OnnxExportTest, HalfReadsTheBatchAgainInFloat32) {
  const torch::Tensor table = torch::full({1, 3, 4}, 1e6);
  nn::Sequential empty;
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    const torch::Tensor indices = (x[0].slice(1, 0, 2) > 0).to(torch::kLong).unsqueeze(1);
    return std::vector<torch::Tensor>{at::take_along_dim(table, indices, 2)};
  };
  export_onnx(*empty, forward, {torch::randn({2, 4})}, path, {.half = true});
  const ReadModel model = read_model(path);
  EXPECT_THAT(model.unknown_inputs, ::testing::IsEmpty());
  EXPECT_THAT(model.operators, AllOf(Contains("Shape"), Contains("GatherElements")));
  EXPECT_EQ(model.sizes.at("output"), "batch,3,2");
}

// In float16, x * 1e6 is infinite. All of cat() computes in float32 if one member does.
TEST_F(OnnxExportTest, HalfJoinsLargeValuesInFloat32) {
  nn::Sequential empty;
  const OnnxForward forward = [](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{at::cat({x[0] * 1e6, x[0]}, 1)};
  };
  export_onnx(*empty, forward, {torch::randn({2, 4})}, path, {.half = true});
  // Otherwise a conversion of the result to float32 would be last.
  EXPECT_EQ(read_model(path).operators.back(), "Concat");
}

// After an operation whose results float16 holds for any argument, it is enough again.
TEST_F(OnnxExportTest, HalfReturnsToFloat16BehindASoftmax) {
  constexpr std::int32_t kFloat16 = 10;
  nn::Linear net(4, 4);
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{net->forward(x[0].masked_fill(x[0] > 0, -1e9).softmax(1))};
  };
  export_onnx(*net, forward, {torch::randn({2, 4})}, path, {.half = true});
  EXPECT_EQ(read_model(path).initializers.at("weight"), kFloat16);
}

TEST_F(OnnxExportTest, WritesTheOpsetThatWasAskedFor) {
  for (const int opset : {17, 18, 19, 20}) {
    const ReadModel model = exported(small_net(), {.opset = opset});
    EXPECT_EQ(model.opset, opset);
    EXPECT_EQ(model.ir_version, opset < 19 ? 8 : 9);
  }
}

TEST_F(OnnxExportTest, SaysWhereTheModelAndItsNodesComeFrom) {
  nn::Sequential net = small_net();
  export_onnx(net, {torch::randn({2, 3, 8, 8})}, path,
              {.fold_batch_norm = false, .metadata = {{"classes", "cat"}, {"libtorch", "none"}}});
  const ReadModel model = read_model(path);
  EXPECT_EQ(model.producer, "lockstep");
  EXPECT_THAT(model.metadata, ElementsAre(::testing::Pair("classes", "cat"),
                                          ::testing::Pair("libtorch", TORCH_VERSION)));
  EXPECT_EQ(model.graph_name, net->name());
  // An operation without parameters counts as part of the module before it.
  EXPECT_THAT(model.node_names, ElementsAre("0/Conv", "1/BatchNormalization", "1/Relu",
                                            "1/GlobalAveragePool", "1/Flatten", "6/Gemm"));
}

TEST_F(OnnxExportTest, TakesNamesOfInputsAndOutputs) {
  const ReadModel model =
      exported(small_net(), {.input_names = {"image"}, .output_names = {"scores"}});
  EXPECT_THAT(model.inputs, ElementsAre("image"));
  EXPECT_THAT(model.outputs, ElementsAre("scores"));
}

// Inputs and outputs come first.
TEST_F(OnnxExportTest, ParametersGiveWayToNamesOfInputsAndOutputs) {
  nn::Linear net(4, 4);
  export_onnx(net, {torch::randn({2, 4})}, path,
              {.input_names = {"weight"}, .output_names = {"bias"}});
  const ReadModel model = read_model(path);
  EXPECT_THAT(initializer_names(model), ElementsAre("bias.1", "weight.1"));
  EXPECT_THAT(model.unknown_inputs, ::testing::IsEmpty());
}

// What follows from parameters and constants alone is computed once, by the export.
TEST_F(OnnxExportTest, ComputesConstantsBeforehand) {
  using torch::indexing::Slice;
  using Code = std::function<torch::Tensor(const torch::Tensor& table)>;
  const std::vector<std::pair<const char*, Code>> cases = {
      {"numbers", [](const auto& table) { return table.cumsum(1).sum(1, /*keepdim=*/true); }},
      {"a list of numbers", [](const auto& table) { return table.reshape({3, 2}).t(); }},
      {"a list of tensors",
       [](const auto& table) { return at::cat({table.slice(0, 1), table.slice(0, 0, 1)}, 0); }},
      {"indices",
       [](const auto& table) { return table.index({Slice(), torch::tensor({2, 0, 1})}); }},
      {"a list as the result", [](const auto& table) { return table.chunk(2, 0)[1]; }},
      {"in place", [](const auto& table) { return table.clone().mul_(2).add_(1); }},
      {"another type and back",
       [](const auto& table) { return table.to(torch::kInt).to(torch::kFloat); }}};
  for (const auto& [name, code] : cases) {
    nn::Sequential net;
    const torch::Tensor table = net->register_buffer("table", torch::randn({2, 3}) * 5);
    const OnnxForward forward = [&, code = code](const std::vector<torch::Tensor>& x) {
      return std::vector<torch::Tensor>{x[0] + code(table)};
    };
    export_onnx(*net, forward, {torch::randn({2, 3})}, path, {.dynamic_batch = false});
    const ReadModel model = read_model(path);
    EXPECT_THAT(model.operators, ElementsAre("Add")) << name;
    EXPECT_EQ(model.initializers.size(), 1U) << name;
  }
}

TEST_F(OnnxExportTest, TuplesBecomeSeveralOutputs) {
  nn::LSTM lstm(nn::LSTMOptions(3, 4).batch_first(true));
  const OnnxExport written = export_onnx(lstm, {torch::randn({2, 5, 3})}, path);
  EXPECT_THAT(written.outputs, ElementsAre("output_0", "output_1", "output_2"));
  const ReadModel model = read_model(path);
  EXPECT_EQ(model.sizes.at("output_0"), "batch,5,4");
  EXPECT_EQ(model.sizes.at("output_1"), "1,batch,4");
  EXPECT_THAT(initializer_names(model),
              AllOf(Contains("weight_ih_l0"), Contains("weight_hh_l0"), Contains("bias_ih_l0")));
}

// A value has one name, and each output its own.
TEST_F(OnnxExportTest, OutputsMayBeInputsParametersOrTheSameValue) {
  nn::Linear net(4, 3);
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    const torch::Tensor y = x[0].relu();
    return std::vector<torch::Tensor>{x[0], y, y, net->bias, y.relu()};
  };
  const OnnxExport written = export_onnx(*net, forward, {torch::randn({2, 4})}, path);
  EXPECT_EQ(written.outputs.size(), 5U);
  const ReadModel model = read_model(path);
  EXPECT_THAT(model.outputs,
              ElementsAre("output_0", "output_1", "output_2", "output_3", "output_4"));
  EXPECT_THAT(model.operators,
              ::testing::UnorderedElementsAre("Relu", "Relu", "Identity", "Identity", "Identity"));
  EXPECT_THAT(model.unknown_inputs, ::testing::IsEmpty());
  EXPECT_EQ(model.sizes.at("output_0"), "batch,4");
  EXPECT_EQ(model.sizes.at("output_3"), "3");
}

TEST_F(OnnxExportTest, AnInputWithoutDimensionsHasNoBatch) {
  nn::Sequential empty;
  const OnnxForward forward = [](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{x[0] * x[1], x[1] + 1};
  };
  export_onnx(*empty, forward, {torch::randn({2, 3}), torch::tensor(2.0F)}, path);
  const ReadModel model = read_model(path);
  EXPECT_EQ(model.sizes.at("input_0"), "batch,3");
  EXPECT_EQ(model.sizes.at("input_1"), "");
  EXPECT_EQ(model.sizes.at("output_0"), "batch,3");
  EXPECT_EQ(model.sizes.at("output_1"), "");
}

// A size that follows the batch, but is not the batch itself, has a symbol of its own.
TEST_F(OnnxExportTest, SizesThatFollowTheBatchHaveSymbols) {
  nn::Sequential empty;
  const OnnxForward forward = [](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{at::cat({x[0], x[0], torch::ones({1, 3})}, 0), x[0].flatten(),
                                      x[0].t()};
  };
  export_onnx(*empty, forward, {torch::randn({2, 3})}, path);
  const ReadModel model = read_model(path);
  EXPECT_EQ(model.sizes.at("output_0"), "output_0_dimension_0,3");
  EXPECT_EQ(model.sizes.at("output_1"), "output_1_dimension_0");
  EXPECT_EQ(model.sizes.at("output_2"), "3,batch");
}

// onnxruntime's kernel gives the lowest number in place of -infinity, which a relu() hides, but not
// from others.
TEST_F(OnnxExportTest, AMaxPoolIsCorrectedUnlessOnlyReluSeesIt) {
  using Code = std::function<std::vector<torch::Tensor>(const torch::Tensor& x)>;
  struct Case {
    const char* name;
    Code code;
    bool is_corrected;
  };
  const Case cases[] = {
      {"alone", [](const auto& x) { return std::vector{at::max_pool2d(x, 2)}; }, true},
      {"before relu", [](const auto& x) { return std::vector{at::max_pool2d(x, 2).relu()}; },
       false},
      {"after relu", [](const auto& x) { return std::vector{at::max_pool2d(x.relu(), 2)}; }, false},
      {"before relu and another",
       [](const auto& x) {
         const torch::Tensor y = at::max_pool2d(x, 2);
         return std::vector{y.relu(), y * 2};
       },
       true},
      {"of doubles",
       [](const auto& x) { return std::vector{at::max_pool2d(x.to(torch::kDouble), 2)}; }, false}};
  for (const Case& each : cases) {
    nn::Sequential empty;
    const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
      return each.code(x[0]);
    };
    export_onnx(*empty, forward, {torch::randn({2, 3, 4, 4})}, path);
    EXPECT_EQ(::testing::Matches(Contains("Where"))(read_model(path).operators), each.is_corrected)
        << each.name;
  }
}

struct TiedNetImpl : nn::Module {
  TiedNetImpl() {
    first = register_parameter("first", torch::randn({4}));
    register_parameter("second", first);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * first + parameters().back(); }

  torch::Tensor first;
};
TORCH_MODULE(TiedNet);

TEST_F(OnnxExportTest, TiedParametersAreStoredOnce) {
  TiedNet net;
  export_onnx(net, {torch::randn({2, 4})}, path);
  const ReadModel model = read_model(path);
  EXPECT_THAT(initializer_names(model), ElementsAre("first"));
  EXPECT_THAT(model.unknown_inputs, ::testing::IsEmpty());
}

TEST_F(OnnxExportTest, SaysHowLargeTheModelIs) {
  nn::Linear net(64, 64);
  const std::vector<torch::Tensor> inputs = {torch::randn({2, 64})};
  for (const std::int64_t most : {std::int64_t{4096}, std::int64_t{1'000'000}}) {
    const OnnxExport written = export_onnx(net, inputs, path, {.most_bytes_in_one_file = most});
    EXPECT_EQ(written.nodes, 1);
    std::int64_t bytes = 0;
    for (const std::string& name : folder.names()) {
      bytes += static_cast<std::int64_t>(std::filesystem::file_size(folder / name));
    }
    EXPECT_EQ(written.bytes, bytes) << most;
    EXPECT_EQ(written.external_data.empty(), most > 4096);
  }
}

TEST_F(OnnxExportTest, TheFusedNetOfMnistIsTracedWithoutItsKernels) {
  MnistNet net;
  export_onnx(net, {torch::randn({2, 1, 28, 28})}, path);
  EXPECT_THAT(read_model(path).operators,
              ElementsAre("Conv", "MaxPool", "Relu", "Conv", "MaxPool", "Relu", "Flatten", "Gemm",
                          "Relu", "Gemm", "LogSoftmax"));
}

TEST_F(OnnxExportTest, LeavesTheModuleAsItWas) {
  nn::Sequential net = small_net();
  net->train();
  net[3]->eval();
  std::vector<torch::Tensor> before;
  for (const auto& each : net->parameters()) before.push_back(each.detach().clone());
  for (const auto& each : net->buffers()) before.push_back(each.detach().clone());
  exported(net);
  std::vector<torch::Tensor> after;
  for (const auto& each : net->parameters()) {
    EXPECT_TRUE(each.requires_grad());
    after.push_back(each.detach());
  }
  for (const auto& each : net->buffers()) after.push_back(each);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i])) << i;
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net[1]->is_training());
  EXPECT_FALSE(net[3]->is_training());
}

TEST_F(OnnxExportTest, WarnsOfValuesThatAreNotFinite) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  struct Case {
    const char* tensor;
    float value;
    const char* warning;  // null: none
  };
  const Case cases[] = {{"6.bias", nan, "6.bias holds values that are not finite; the training"},
                        {"0.weight", infinity, "0.weight holds values that are not finite; the"},
                        {"1.running_mean", nan, "1.running_mean holds values that are not finite"},
                        // common in buffers
                        {"1.running_var", infinity, nullptr},
                        {"6.bias", 1e30F, nullptr}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.tensor);
    nn::Sequential net = small_net();
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : net->named_parameters()) {
        if (item.key() == c.tensor) item.value().view(-1)[0] = c.value;
      }
      for (auto& item : net->named_buffers()) {
        if (item.key() == c.tensor) item.value().view(-1)[0] = c.value;
      }
    }
    const testing_support::CapturedLog log;
    try {
      exported(net);
    } catch (const Error&) {  // what happens then depends on the operators
    }
    if (c.warning == nullptr) {
      EXPECT_THAT(log.lines(), ::testing::IsEmpty());
    } else {
      EXPECT_THAT(log.lines(), Contains(HasSubstr(c.warning)));
    }
  }
  nn::Sequential net = small_net();
  for (auto& parameter : net->parameters()) parameter.detach().fill_(nan);
  const testing_support::CapturedLog log;
  try {
    exported(net);
  } catch (const Error&) {
  }
  EXPECT_THAT(log.lines(), Contains(HasSubstr("0.weight holds values that are not finite, as do 4 "
                                              "other tensors; ")));
}

TEST_F(OnnxExportTest, LargeParametersGoToAFileOfTheirOwn) {
  nn::Linear net(64, 64);
  const OnnxExport written =
      export_onnx(net, {torch::randn({2, 64})}, path, {.most_bytes_in_one_file = 4096});
  const std::string name = written.external_data.filename().string();
  EXPECT_THAT(name, ::testing::MatchesRegex("net\\.onnx\\.[0-9a-f]+\\.data"));
  const ReadModel model = read_model(path);
  EXPECT_EQ(model.locations.at("weight"), name);
  EXPECT_FALSE(model.locations.contains("bias"));
  const std::string data = read_text(written.external_data);
  const torch::Tensor weight = net->weight.detach().contiguous();
  EXPECT_EQ(data, std::string(static_cast<const char*>(weight.const_data_ptr()), weight.nbytes()));
  EXPECT_THAT(folder.names(), ElementsAre("net.onnx", name));
  const OnnxExport half = export_onnx(net, {torch::randn({2, 64})}, path,
                                      {.half = true, .most_bytes_in_one_file = 4096});
  const torch::Tensor halved = weight.to(torch::kHalf);
  EXPECT_EQ(read_text(half.external_data),
            std::string(static_cast<const char*>(halved.const_data_ptr()), halved.nbytes()));
}

struct ListNetImpl : nn::Module {
  torch::Tensor forward(const std::vector<torch::Tensor>& x) { return x.at(0) - x.back(); }
};
TORCH_MODULE(ListNet);
struct ReferenceNetImpl : nn::Module {
  torch::Tensor forward(at::TensorList x) { return x[0] - x.back(); }
};
TORCH_MODULE(ReferenceNet);
// Accepts one tensor as well as a list.
struct GenericNetImpl : nn::Module {
  torch::Tensor forward(const auto& x) { return x[0] * 2; }
};
// Declares what it takes.
struct OverloadedNetImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor forward(const std::vector<torch::Tensor>& x);
};

TEST_F(OnnxExportTest, GivesForwardAListIfItTakesOne) {
  const std::vector<torch::Tensor> one = {torch::randn({2, 4})};
  const std::vector<torch::Tensor> two = {torch::randn({2, 4}), torch::randn({2, 4})};
  ListNet list;
  ReferenceNet reference;
  for (const auto& inputs : {one, two}) {
    EXPECT_EQ(export_onnx(list, inputs, path).inputs.size(), inputs.size());
    EXPECT_THAT(read_model(path).operators, ElementsAre("Sub"));
    EXPECT_EQ(export_onnx(reference, inputs, path).inputs.size(), inputs.size());
    EXPECT_EQ(read_model(path).sizes.at("output"), "batch,4");
  }
}

// Otherwise x[0] would be the first row of an only input. A static_assert in export_onnx() refuses
// what this function finds.
TEST_F(OnnxExportTest, CompilesOnlyWithAForwardThatDeclaresWhatItTakes) {
  EXPECT_TRUE((detail::forward_takes_anything<GenericNetImpl, torch::Tensor>()));
  EXPECT_FALSE((detail::forward_takes_anything<OverloadedNetImpl, torch::Tensor>()));
  EXPECT_FALSE((detail::forward_takes_anything<ListNetImpl, torch::Tensor>()));
  EXPECT_FALSE((detail::forward_takes_anything<ReferenceNetImpl, torch::Tensor>()));
  EXPECT_FALSE((detail::forward_takes_anything<nn::SequentialImpl, torch::Tensor>()));
  EXPECT_FALSE((detail::forward_takes_anything<nn::LSTMImpl, torch::Tensor>()));
}

TEST_F(OnnxExportTest, KeepsTheOldFileWhenItFails) {
  folder.write("net.onnx", "old");
  nn::Linear net(4, 4);
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{at::digamma(net->forward(x[0]))};
  };
  EXPECT_THROW(export_onnx(*net, forward, {torch::randn({2, 4})}, path), ConfigError);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_THAT(folder.names(), ElementsAre("net.onnx"));
  EXPECT_TRUE(net->is_training()) << "as before";
}

TEST_F(OnnxExportTest, ChecksItsOptions) {
  nn::Linear net(4, 4);
  const std::vector<torch::Tensor> inputs = {torch::randn({2, 4})};
  const auto message = [&](const std::vector<torch::Tensor>& given,
                           const OnnxExportOptions& options) -> std::string {
    try {
      export_onnx(net, given, path, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_EQ(message(inputs, {.opset = 16}), "export_onnx: opset must be from 17 to 20, got 16");
  EXPECT_THAT(message(inputs, {.opset = 21}), HasSubstr("opset must be"));
  EXPECT_THAT(message({}, {}), HasSubstr("example input"));
  EXPECT_THAT(message({inputs[0], inputs[0]}, {}), HasSubstr("does not take 2 tensors"));
  EXPECT_THAT(message(inputs, {.batch_dimensions = {0, 1}}),
              HasSubstr("each of the 1 inputs, got 2"));
  EXPECT_THAT(message(inputs, {.batch_dimensions = {2}}),
              HasSubstr("input 0 has 2 dimensions, so that its batch cannot be dimension 2"));
  EXPECT_THAT(message(inputs, {.batch_dimensions = {-2}}), HasSubstr("dimension -2"));
  EXPECT_THAT(message({torch::Tensor()}, {}), HasSubstr("input 0 is undefined"));
  EXPECT_THAT(message({torch::randn({0, 4})}, {}),
              HasSubstr("dimension 0 of input 0 is 0, expected at least one sample; "));
  EXPECT_THAT(message({inputs[0], torch::randn({3, 4})}, {}),
              HasSubstr("dimension 0 of input 1 is 3, but the batch of the inputs before is 2; "));
  EXPECT_THAT(message({torch::tensor(1.0F)}, {.batch_dimensions = {0}}),
              HasSubstr("input 0 has 0 dimensions"));
  EXPECT_THAT(message(inputs, {.most_bytes_in_one_file = 0}), HasSubstr("most_bytes_in_one_file"));
  EXPECT_THAT(message(inputs, {.input_names = {""}}), HasSubstr("the name of an input or output is "
                                                                "empty"));
  EXPECT_THAT(message(inputs, {.output_names = {"a", "b"}}),
              HasSubstr("output_names must name all 1 outputs, got 2"));
  EXPECT_THAT(message(inputs, {.input_names = {"a", "b"}}), HasSubstr("input_names"));
  EXPECT_THAT(message(inputs, {.input_names = {"a"}, .output_names = {"a"}}),
              HasSubstr("export_onnx: two inputs or outputs have the name 'a'"));
}

}  // namespace
}  // namespace lockstep
