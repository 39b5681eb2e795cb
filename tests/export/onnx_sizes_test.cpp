// The exported model is right for every batch that it accepts: forward() must take the same way for
// all of them, however it learns the size.
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <lockstep/core/strings.h>
#include <lockstep/export/onnx_export.h>
#include <tests/export/exported_code.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Code;
using torch::Tensor;

class OnnxSizes : public testing_support::ExportedCode {};

TEST_F(OnnxSizes, ABranchOnASize) {
  const auto branch = [](const std::function<bool(const Tensor&)>& condition) -> Code {
    return [condition](const Tensor& x) { return condition(x) ? x.relu() : x.sigmoid(); };
  };
  const std::vector<std::pair<const char*, Code>> cases = {
      {"one sample", branch([](const Tensor& x) { return x.size(0) > 1; })},
      {"far away", branch([](const Tensor& x) { return x.size(0) > 64; })},
      {"very far away", branch([](const Tensor& x) { return x.size(0) >= 500'000; })},
      {"one size", branch([](const Tensor& x) { return x.size(0) == 37; })},
      {"a power of two", branch([](const Tensor& x) { return x.size(0) == 4096; })},
      {"every fourth", branch([](const Tensor& x) { return x.size(0) % 4 == 3; })},
      {"all sizes", branch([](const Tensor& x) { return x.sizes()[0] < 100; })},
      {"symbolic", branch([](const Tensor& x) { return x.sym_size(0) < 100; })},
      {"elements", branch([](const Tensor& x) { return x.numel() > 1000; })},
      {"bytes", branch([](const Tensor& x) { return x.nbytes() > 4096; })},
      {"a stride", branch([](const Tensor& x) { return x.t().stride(0) * x.size(0) > 99; })},
      {"an operator", branch([](const Tensor& x) { return at::size(x, 0) > 50; })},
      {"a tensor of it", branch([](const Tensor& x) {
         return torch::tensor(x.size(0)).mul(2).item<std::int64_t>() > 200;
       })},
      {"of a later result",
       branch([](const Tensor& x) { return x.flatten().unsqueeze(1).size(0) > 1000; })},
      {"as a loop", [](const Tensor& x) {
         Tensor y = x;
         for (std::int64_t i = 20; i < x.size(0); ++i) y = y + 1;
         return y;
       }}};
  for (const auto& [name, code] : cases) {
    for (const std::int64_t example : {1, 2, 5}) {
      for (const bool follow : {false, true}) {
        EXPECT_THAT(refusal(code, example, {.follow_batch = follow}), HasSubstr("export_onnx: "))
            << name << " with an example of " << example;
      }
    }
    EXPECT_EQ(refusal(code, 2, {.dynamic_batch = false}), "nothing was refused") << name;
  }
}

// LibTorch lists attention as random although it is not without dropout.
TEST_F(OnnxSizes, ABranchBehindAttention) {
  for (const bool branches : {false, true}) {
    const Code code = [branches](const Tensor& x) {
      const Tensor rows = x.unsqueeze(1);
      const Tensor y = at::scaled_dot_product_attention(rows, rows, rows).squeeze(1);
      return branches && x.size(0) > 64 ? y.relu() : y.sigmoid();
    };
    EXPECT_THAT(refusal(code, 2),
                HasSubstr(branches ? "with a batch of 65, forward() takes a different path"
                                   : "nothing was refused"));
  }
}

TEST_F(OnnxSizes, TheErrorNamesTheBatchAndThePlace) {
  const std::string message =
      refusal([](const Tensor& x) { return x.size(0) > 64 ? x.relu() : x.sigmoid(); }, 2);
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("with a batch of 65, forward() takes a different path after 0 (parameter "
                      "0.weight): it calls aten::relu where aten::sigmoid was recorded"),
            HasSubstr("torch::where()")));
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    const Tensor y = x.relu();
                    return x.size(0) < 100 ? y.sigmoid() : y;
                  },
                  2),
              HasSubstr("with a batch of 100, forward() ends after 0 (parameter 0.weight), before "
                        "aten::sigmoid"));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.mul(x.size(0) > 99 ? 2 : 3); }, 2),
              HasSubstr("with a batch of 100, forward() gives aten::mul another argument 1 after 0 "
                        "(parameter 0.weight), 2 where the trace has 3"));
  EXPECT_THAT(
      refusal([](const Tensor& x) { return x.narrow(0, 0, std::min<std::int64_t>(x.size(0), 16)); },
              2, {.follow_batch = true}),
      HasSubstr("with a batch of 17, forward() gives aten::narrow another argument 3 after 0 "
                "(parameter 0.weight), 16 where the trace has 17"));
}

// Without a dynamic batch, only the example's sizes are rehearsed, with tensors without memory.
TEST_F(OnnxSizes, TheErrorNamesTheExamplesSizes) {
  const OnnxExportOptions fixed = {.dynamic_batch = false};
  EXPECT_THAT(
      refusal([](const Tensor& x) { return x.has_storage() ? x.sigmoid() : x.relu(); }, 2, fixed),
      AllOf(
          HasSubstr("with the example's sizes, forward() takes a different path after 0 (parameter "
                    "0.weight): it calls aten::relu where aten::sigmoid was recorded: a recorded "
                    "graph has a single path; forward() must behave the same in every call"),
          Not(HasSubstr("dynamic_batch"))));
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    TORCH_CHECK(x.has_storage(), "is not a real tensor");
                    return x.relu();
                  },
                  2, fixed),
              AllOf(HasSubstr("forward() fails with the example's sizes after 0"),
                    HasSubstr("is not a real tensor"), Not(HasSubstr("dynamic_batch"))));
}

// Only the last of the recorded batches shows that the size follows no line.
TEST_F(OnnxSizes, ASizeThatBendsWithinTheRecordedBatches) {
  EXPECT_THAT(refusal([](const Tensor& x) { return x.slice(0, 0, 2); }, 2),
              HasSubstr("dimension 0 of the result of aten::slice after 0 (parameter 0.weight) is "
                        "2 for batch 2, 2 for batch 3, 2 for batch 5, 1 for batch 1, which "));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.slice(0, 0, 4); }, 2),
              HasSubstr("is 2 for batch 2, 3 for batch 3, 4 for batch 5, 1 for batch 1, which "));
}

// Each of the recorded batches is compared, not only the first or the last.
TEST_F(OnnxSizes, ANumberThatDiffersForOneRecordedBatch) {
  for (const std::int64_t batch : {1, 3, 5}) {
    const Code code = [batch](const Tensor& x) { return x.mul(x.size(0) == batch ? 2 : 3); };
    for (const bool follow : {false, true}) {
      EXPECT_THAT(refusal(code, 2, {.follow_batch = follow}),
                  HasSubstr("bakes the batch into constants that a trace cannot follow: aten::mul "
                            "with 3 after 0 (parameter 0.weight); write sizes"))
          << batch;
    }
  }
}

// The message names a place with its number only once.
TEST_F(OnnxSizes, NumbersThatFollowTheBatchInSeveralPlaces) {
  EXPECT_THAT(refusal([](const Tensor& x) { return x.div(x.size(0)).div(x.size(0)); }, 2),
              HasSubstr("cannot follow: aten::div with 2 after 0 (parameter 0.weight); write "));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.div(x.size(0)).mul(x.size(0) + 5); }, 2),
              HasSubstr("cannot follow: aten::div with 2 after 0 (parameter 0.weight); aten::mul "
                        "with 7 after 0 (parameter 0.weight); write "));
}

// The states of a recurrent layer follow the batch, and what comes after it does not.
TEST_F(OnnxSizes, ARefusalNamesNoPlaceThatFollowsTheBatch) {
  nn::LSTM lstm(nn::LSTMOptions(3, 4).batch_first(true));
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    const Tensor y = std::get<0>(lstm->forward(x[0]));
    return std::vector<Tensor>{y.reshape({y.size(0), 20})};
  };
  EXPECT_THAT(refusal_of(*lstm, forward, {torch::rand({2, 5, 3})}),
              AllOf(HasSubstr("that a trace cannot follow: aten::reshape with 2 "),
                    Not(HasSubstr("aten::zeros"))));
}

// Each of these sizes alone is tried, even if all others take the same way. One is always recorded.
TEST_F(OnnxSizes, ABranchOnOneRoundNumber) {
  const std::int64_t sizes[] = {6,    127,  130,    255,    256,    257,     999,       1000,
                                1001, 1023, 10'000, 65'535, 65'537, 999'999, 1'000'000, 1'000'001};
  for (const std::int64_t size : sizes) {
    const Code code = [size](const Tensor& x) {
      return x.size(0) == size ? x.relu() : x.sigmoid();
    };
    const std::string expected =
        str("with a batch of ", size, ", forward() takes a different path");
    EXPECT_THAT(refusal(code, 2), HasSubstr(expected));
  }
}

// The three recorded batches lie on a line, which bends later.
TEST_F(OnnxSizes, AnArgumentThatFollowsTheBatchOnlyAtFirst) {
  const std::vector<Code> codes = {
      [](const Tensor& x) { return x.narrow(0, 0, std::min<std::int64_t>(x.size(0), 16)); },
      [](const Tensor& x) { return x.slice(0, 0, std::min<std::int64_t>(x.size(0), 600)); },
      [](const Tensor& x) { return x.mul(x.size(0) > 99 ? 2 : 3); },
      [](const Tensor& x) { return x.sum(x.size(0) > 99 ? 1 : 0); },
      [](const Tensor& x) {
        const Tensor scale = torch::tensor({x.size(0) > 99 ? 1.0F : 2.0F});
        return x * scale;
      },
      [](const Tensor& x) {
        const Tensor y = x.relu();
        return at::add(x, x.size(0) > 99 ? x : y);
      }};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_THAT(refusal(codes[i], 2, {.follow_batch = true}), HasSubstr("export_onnx: ")) << i;
  }
}

TEST_F(OnnxSizes, OutputsThatChangeWithTheBatch) {
  nn::Sequential net(nn::Linear(3, 3));
  const OnnxForward swapped = [&](const std::vector<Tensor>& x) {
    const Tensor y = net->forward(x[0]);
    const Tensor z = y.relu();
    return x[0].size(0) > 99 ? std::vector<Tensor>{z, y} : std::vector<Tensor>{y, z};
  };
  EXPECT_THAT(refusal_of(*net, swapped, {torch::rand({2, 3})}),
              HasSubstr("returns another tensor as output 0"));
  const OnnxForward fewer = [&](const std::vector<Tensor>& x) {
    const Tensor y = net->forward(x[0]);
    std::vector<Tensor> outputs = {y};
    if (x[0].size(0) < 100) outputs.push_back(y);
    return outputs;
  };
  EXPECT_THAT(refusal_of(*net, fewer, {torch::rand({2, 3})}),
              HasSubstr("returns 1 tensors where 2 were recorded"));
}

TEST_F(OnnxSizes, ABatchThatForwardRefuses) {
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    TORCH_CHECK(x.size(0) <= 512, "at most 512 samples");
                    return x.relu();
                  },
                  2),
              AllOf(HasSubstr("forward() fails with a batch of 513"),
                    HasSubstr("at most 512 samples"), HasSubstr("dynamic_batch = false")));
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    TORCH_CHECK(x.size(0) > 1, "at least two samples");
                    return x.relu();
                  },
                  2),
              AllOf(HasSubstr("forward() fails with a batch of 1"), HasSubstr("at least two")));
}

// What a branch on the memory decides cannot be seen.
TEST_F(OnnxSizes, AnAccessToMemory) {
  const Code code = [](const Tensor& x) {
    return x.const_data_ptr<float>()[0] > 1e9F ? x.relu() : x.sigmoid();
  };
  for (const bool dynamic : {true, false}) {
    EXPECT_THAT(refusal(code, 2, {.dynamic_batch = dynamic}),
                AllOf(HasSubstr("accesses the memory of a tensor (data_ptr() or accessor) after 0 "
                                "(parameter 0.weight)"),
                      HasSubstr("allow_reads")));
    EXPECT_EQ(refusal(code, 2, {.dynamic_batch = dynamic, .allow_reads = true}),
              "nothing was refused");
  }
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    const auto values = x.accessor<float, 2>();
                    return values[0][0] > 1e9F ? x.relu() : x.sigmoid();
                  },
                  2),
              HasSubstr("accesses the memory"));
  const Code storage = [](const Tensor& x) {
    return x.storage().nbytes() > 1'000'000 ? x.relu() : x.sigmoid();
  };
  const Code alias = [](const Tensor& x) {
    const Tensor y = x.relu();
    return x.is_alias_of(y) ? y.sigmoid() : y;
  };
  for (const Code& each : {storage, alias}) {
    EXPECT_THAT(refusal(each, 2), HasSubstr("accesses the memory of a tensor"));
    EXPECT_EQ(refusal(each, 2, {.allow_reads = true}), "nothing was refused");
  }
}

// Without a batch there is one size, which forward() may read and branch on.
TEST_F(OnnxSizes, OfInputsWithoutABatchAreFixed) {
  nn::Sequential net(nn::Linear(3, 3));
  const OnnxForward view = [&](const std::vector<Tensor>& x) {
    const Tensor y = net->forward(x[0]).view({x[0].size(0), 3, 1});
    return std::vector<Tensor>{x[0].size(0) > 64 ? y.relu() : y.sigmoid()};
  };
  EXPECT_EQ(refusal_of(*net, view, {torch::rand({2, 3})}, {.batch_dimensions = {-1}}),
            "nothing was refused");
  EXPECT_EQ(testing_support::read_model(folder / "net.onnx").sizes.at("input"), "2,3");
  EXPECT_EQ(testing_support::read_model(folder / "net.onnx").sizes.at("output"), "2,3,1");
  const OnnxForward pair = [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{net->forward(x[0]) + x[1].view({3, x[1].size(0)}).sum(1)};
  };
  EXPECT_EQ(refusal_of(*net, pair, {torch::rand({2, 3}), torch::rand({5, 3})},
                       {.batch_dimensions = {0, -1}}),
            "nothing was refused");
  const auto sizes = testing_support::read_model(folder / "net.onnx").sizes;
  EXPECT_EQ(sizes.at("input_0"), "batch,3");
  EXPECT_EQ(sizes.at("input_1"), "5,3");
  const OnnxForward memory = [&](const std::vector<Tensor>& x) {
    const Tensor y = net->forward(x[0]);
    return std::vector<Tensor>{y.has_storage() ? y.relu() : y.sigmoid()};
  };
  EXPECT_THAT(refusal_of(*net, memory, {torch::rand({2, 3})}, {.batch_dimensions = {-1}}),
              HasSubstr("with the example's sizes, forward() takes a different path"));
}

// The state of zeros with which a recurrent layer or cell begins follows the batch, and other zeros
// do not.
TEST_F(OnnxSizes, FirstStatesFollowTheBatch) {
  const auto message = [&](auto net, const Tensor& x, std::int64_t batch_dimension) {
    const std::filesystem::path path = folder / "net.onnx";
    std::filesystem::remove(path);
    try {
      export_onnx(net, {x}, path, {.batch_dimensions = {batch_dimension}});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return testing_support::read_model(path).sizes.at("input");
  };
  const Tensor sequence = torch::rand({5, 2, 3});
  const nn::RNNOptions relu = nn::RNNOptions(3, 4).nonlinearity(torch::kReLU);
  EXPECT_EQ(message(nn::RNN(relu), sequence, 1), "5,batch,3");
  EXPECT_EQ(message(nn::RNN(nn::RNNOptions(3, 4)), sequence, 1), "5,batch,3");
  EXPECT_EQ(message(nn::LSTM(nn::LSTMOptions(3, 4)), sequence, 1), "5,batch,3");
  EXPECT_EQ(message(nn::GRU(nn::GRUOptions(3, 4)), sequence, 1), "5,batch,3");
  EXPECT_EQ(message(nn::RNNCell(3, 4), sequence[0], 0), "batch,3");
  EXPECT_EQ(message(nn::LSTMCell(3, 4), sequence[0], 0), "batch,3");
  EXPECT_EQ(message(nn::GRUCell(3, 4), sequence[0], 0), "batch,3");
  const Code zeros = [](const Tensor& x) { return at::cat({x, torch::zeros({x.size(0), 2})}, 1); };
  EXPECT_THAT(refusal(zeros, 2), HasSubstr("aten::zeros with 2 after 0 (parameter 0.weight)"));
  nn::Linear layer(3, 3);
  const OnnxForward linear = [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{x[0] + layer->forward(torch::zeros({x[0].size(0), 3}))};
  };
  EXPECT_THAT(refusal_of(*layer, linear, {torch::rand({2, 3})}), HasSubstr("aten::zeros with 2"));
}

// Sizes may be read for what follows the batch, and for what does not.
TEST_F(OnnxSizes, NotWhatIsRightForAllBatches) {
  const std::vector<Code> codes = {
      [](const Tensor& x) { return x.size(1) > 2 ? x.relu() : x.sigmoid(); },
      [](const Tensor& x) { return x.is_contiguous() ? x.relu() : x.sigmoid(); },
      [](const Tensor& x) { return x.t().is_contiguous() ? x.relu() : x.t().contiguous().t(); },
      [](const Tensor& x) { return x.clone().add_(1).relu_().unsqueeze_(1); },
      [](const Tensor& x) { return at::cat(x.split(1, 1), 1) + x.chunk(3, 1)[2]; },
      [](const Tensor& x) { return x + torch::tensor({1.0F, 2.0F, 3.0F}); },
      [](const Tensor& x) { return x + torch::ones({3}).cumsum(0).sum().item<float>(); },
      [](const Tensor& x) { return x.contiguous().to(torch::kFloat).flatten(1).relu() + x; },
      [](const Tensor& x) {
        const Tensor y = torch::zeros_like(x);
        y.copy_(x);
        return y;
      },
      [](const Tensor& x) { return std::get<0>(x.max(1)) + std::get<1>(x.sort(1)).select(1, 0); },
      [](const Tensor& x) {
        const Tensor part = x.unsqueeze(2).repeat({1, 1, 3}).slice(2, 0, 2);
        return part.is_contiguous() ? x.relu() : part.sigmoid();
      },
      [](const Tensor& x) {
        const Tensor part = x.unsqueeze(2).repeat({1, 1, 3}).slice(2, 0, 2);
        return part.stride(0) == 9 && part.stride(1) == 3 ? part.relu() : x.sigmoid();
      },
      // Expanded tensors have to be copied, also as stand-ins.
      [](const Tensor& x) { return x.unsqueeze(2).expand({-1, 3, 2}).contiguous() + 1; },
      [](const Tensor& x) { return x.unsqueeze(1).expand({-1, 2, 3}).contiguous() + 1; },
      // NaN equals itself: as a number, in a tensor made in forward(), and in the output.
      [](const Tensor& x) { return x.masked_fill(x > 0, std::nan("")); },
      [](const Tensor& x) { return x + torch::tensor({std::nanf(""), 2.0F, 3.0F}); },
      // The members of a list that does not depend on the input.
      [](const Tensor& x) {
        const std::vector<Tensor> rows = torch::ones({2, 3}).cumsum(0).unbind(0);
        return x * rows[1] + rows[0];
      },
      // Numbers out of the results of operations that do not depend on the input.
      [](const Tensor& x) {
        const std::vector<Tensor> rows = torch::ones({2, 3}).cumsum(0).unbind(0);
        return x * rows[1].sum().item<float>();
      },
      [](const Tensor& x) {
        const auto [values, places] = torch::ones({2, 3}).cumsum(1).max(1);
        return x * values.sum().item<float>() + places.sum().item<std::int64_t>();
      },
      // Strides of expanded tensors.
      [](const Tensor& x) {
        const Tensor y = x.unsqueeze(1).expand({-1, 2, 3});
        return y.stride(0) == 3 && y.stride(1) == 0 && y.stride(2) == 1 ? x.relu() : x.sigmoid();
      },
      // Every form of a convolution.
      [](const Tensor& x) { return at::conv1d(x.unsqueeze(1), torch::ones({1, 1, 2})); },
      [](const Tensor& x) { return at::conv2d(x.view({-1, 1, 1, 3}), torch::ones({1, 1, 1, 2})); },
      [](const Tensor& x) {
        return at::conv3d(x.view({-1, 1, 1, 1, 3}), torch::ones({1, 1, 1, 1, 2}));
      },
      [](const Tensor& x) { return at::conv_transpose1d(x.unsqueeze(1), torch::ones({1, 1, 2})); },
      [](const Tensor& x) {
        return at::conv_transpose2d(x.view({-1, 1, 1, 3}), torch::ones({1, 1, 1, 2}));
      },
      [](const Tensor& x) {
        return at::conv_transpose3d(x.view({-1, 1, 1, 1, 3}), torch::ones({1, 1, 1, 1, 2}));
      },
      [](const Tensor& x) {
        return at::convolution(x.unsqueeze(1), torch::ones({1, 1, 2}), {}, {1}, {0}, {1}, false,
                               {0}, 1);
      },
  };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (const std::int64_t example : {1, 3}) {
      const std::string message = refusal(codes[i], example);
      // t() of one sample is contiguous, which decides the branch in the third.
      if (i == 2) continue;
      EXPECT_EQ(message, "nothing was refused") << i << " with an example of " << example;
    }
  }
  const std::vector<Code> follow = {
      [](const Tensor& x) { return x.view({x.size(0), 3, 1}).expand({x.size(0), 3, 2}); },
      [](const Tensor& x) { return at::cat({x, torch::zeros({x.size(0), 2})}, 1); },
      [](const Tensor& x) { return x + torch::arange(x.size(0)).unsqueeze(1); },
      [](const Tensor& x) { return x.reshape({-1}).view({x.size(0) * 3, 1}); }};
  for (std::size_t i = 0; i < follow.size(); ++i) {
    EXPECT_EQ(refusal(follow[i], 2, {.follow_batch = true}), "nothing was refused") << i;
  }
}

// Stand-ins are laid out in memory like the recorded tensors.
TEST_F(OnnxSizes, NotStridesThatAreAlikeForAllBatches) {
  using Strides = std::vector<std::int64_t>;
  struct Case {
    const char* name;
    Code code;
    std::function<Strides(std::int64_t batch)> strides;
  };
  const std::vector<Case> cases = {
      {"transposed", [](const Tensor& x) { return x.t(); },
       [](std::int64_t) { return Strides{1, 3}; }},
      {"permuted",
       [](const Tensor& x) { return x.unsqueeze(2).repeat({1, 1, 4}).permute({2, 0, 1}); },
       [](std::int64_t) { return Strides{1, 12, 4}; }},
      {"before the batch", [](const Tensor& x) { return x.unsqueeze(0).repeat({4, 1, 1}); },
       [](std::int64_t batch) { return Strides{3 * batch, 3, 1}; }},
      {"a part of each row",
       [](const Tensor& x) { return x.unsqueeze(0).repeat({4, 1, 1}).slice(2, 0, 2); },
       [](std::int64_t batch) { return Strides{3 * batch, 3, 1}; }}};
  for (const Case& each : cases) {
    const Code code = [&](const Tensor& x) {
      const Tensor y = each.code(x);
      return y.strides() == torch::IntArrayRef(each.strides(x.size(0))) ? y.relu() : y.sigmoid();
    };
    EXPECT_EQ(refusal(code, 2), "nothing was refused") << each.name;
    EXPECT_THAT(testing_support::read_model(folder / "net.onnx").operators,
                ::testing::Contains("Relu"))
        << each.name;
  }
}

// The tracer then uses the name of the result for the argument, too.
TEST_F(OnnxSizes, NotOperationsThatReturnTheirArgument) {
  const std::vector<std::pair<const char*, Code>> operations = {
      {"alias", [](const Tensor& x) { return at::alias(x); }},
      {"contiguous", [](const Tensor& x) { return x.contiguous(); }},
      {"to", [](const Tensor& x) { return x.to(torch::kFloat); }},
      {"type_as", [](const Tensor& x) { return x.type_as(x); }},
      {"flatten", [](const Tensor& x) { return x.flatten(1); }},
      {"movedim", [](const Tensor& x) { return x.movedim(0, 0); }},
      {"moveaxis", [](const Tensor& x) { return x.moveaxis(0, 0); }},
      {"dropout", [](const Tensor& x) { return at::dropout(x, 0.5, false); }},
      {"feature_dropout", [](const Tensor& x) { return at::feature_dropout(x, 0.5, false); }},
      {"alpha_dropout", [](const Tensor& x) { return at::alpha_dropout(x, 0.5, false); }},
      {"feature_alpha_dropout",
       [](const Tensor& x) { return at::feature_alpha_dropout(x, 0.5, false); }}};
  for (const auto& [name, operation] : operations) {
    const Code code = [operation = operation](const Tensor& x) {
      const Tensor y = operation(x);
      return x.relu() + y;
    };
    EXPECT_EQ(refusal(code, 2), "nothing was refused") << name;
  }
}

// With a fixed batch, an example may be empty.
TEST_F(OnnxSizes, OfAnEmptyExampleAreFixed) {
  const Code code = [](const Tensor& x) { return x.sigmoid() * 2; };
  EXPECT_EQ(refusal(code, 0, {.dynamic_batch = false}), "nothing was refused");
  const auto sizes = testing_support::read_model(folder / "net.onnx").sizes;
  EXPECT_EQ(sizes.at("input"), "0,3");
  EXPECT_EQ(sizes.at("output"), "0,3");
}

// For one sample there is nothing to copy, and contiguous() calls no operation. What follows may
// depend on that, as a write to the copy does.
TEST_F(OnnxSizes, CopiesThatOneSampleDoesNotNeed) {
  for (const std::int64_t example : {1, 3}) {
    EXPECT_THAT(refusal([](const Tensor& x) { return x.slice(1, 0, 2).contiguous() + 1; }, example),
                AllOf(HasSubstr("aten::contiguous"), HasSubstr("clone()")));
    EXPECT_EQ(refusal([](const Tensor& x) { return x.slice(1, 0, 2).clone() + 1; }, example),
              "nothing was refused");
  }
}

}  // namespace
}  // namespace lockstep
