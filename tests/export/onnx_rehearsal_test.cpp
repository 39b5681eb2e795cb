// forward() must call the same operations with the same arguments for batches that were never
// recorded. The recorded batches are alike in all of these tests.
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/export/exported_code.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Code;
using torch::Tensor;

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

class OnnxRehearsal : public testing_support::ExportedCode {};

// The operation has the same name with and without the argument, and as another overload.
TEST_F(OnnxRehearsal, ArgumentsThatLargeBatchesChange) {
  struct Case {
    Code code;
    const char* message;
  };
  using Limit = std::optional<torch::Scalar>;
  const std::vector<Case> cases = {
      {[](const Tensor& x) {
         const Tensor bias = x.mean(0);
         return at::linear(x, torch::ones({3, 3}), x.size(0) > 99 ? Tensor() : bias);
       },
       "forward() gives aten::linear another argument 2 after 0 (parameter 0.weight), none where "
       "the trace has another tensor"},
      {[](const Tensor& x) {
         const Tensor bias = x.mean(0);
         return at::linear(x, torch::ones({3, 3}), x.size(0) > 99 ? bias : Tensor());
       },
       "gives aten::linear another argument 2 after 0 (parameter 0.weight), a tensor [3] where the "
       "trace has none"},
      {[](const Tensor& x) { return x.clamp(x.size(0) > 99 ? Limit() : Limit(0), Limit(1)); },
       "gives aten::clamp another argument 1 after 0 (parameter 0.weight), none where the trace "
       "has 0"},
      {[](const Tensor& x) { return x.clamp(Limit(0), x.size(0) > 99 ? Limit(1) : Limit()); },
       "gives aten::clamp another argument 2 after 0 (parameter 0.weight), 1 where the trace has "
       "none"},
      {[](const Tensor& x) { return x.sum(x.size(0) > 99 ? 1 : 0); },
       "gives aten::sum another argument 1 after 0 (parameter 0.weight), [1] where the trace has "
       "[0]"},
      {[](const Tensor& x) {
         const std::vector<std::int64_t> rows = {0};
         using Dimensions = at::OptionalIntArrayRef;
         return x.sum(x.size(0) > 99 ? Dimensions() : Dimensions(rows), false);
       },
       "gives aten::sum another argument 1 after 0 (parameter 0.weight), none where the trace has "
       "[0]"},
      {[](const Tensor& x) { return x.size(0) > 99 ? x.sum() : x.sum(0); },
       "calls another form of aten::sum after 0 (parameter 0.weight)"},
      {[](const Tensor& x) {
         const Tensor y = x.relu();
         return x.size(0) > 99 ? at::cat({x, y}, 1) : at::cat({y, x}, 1);
       },
       "gives aten::cat another argument 0 after 0 (parameter 0.weight), a list of tensors where "
       "the trace has [another tensor, another tensor]"},
      {[](const Tensor& x) {
         const Tensor y = x.relu();
         return x.size(0) > 99 ? at::cat({y, y, y}, 1) : at::cat({y, y}, 1);
       },
       "gives aten::cat another argument 0 after 0 (parameter 0.weight), a list of tensors where "},
      {[](const Tensor& x) {
         const Tensor y = x.relu();
         return at::add(x, x.size(0) > 99 ? x : y);
       },
       "gives aten::add another argument 1 after 0 (parameter 0.weight), a tensor [100, 3] where "
       "the trace has another tensor"}};
  for (const Case& each : cases) {
    EXPECT_THAT(refusal(each.code, 2),
                AllOf(HasSubstr("with a batch of 100, "), HasSubstr(each.message)));
  }
}

TEST_F(OnnxRehearsal, CallsThatLargeBatchesChange) {
  struct Case {
    const char* name;
    Code code;
  };
  using Dimensions = at::OptionalIntArrayRef;
  const auto is_large = [](const Tensor& x) { return x.size(0) > 99; };
  const auto square = [](const Tensor& x) { return x.unsqueeze(2) * x.unsqueeze(1); };
  const std::vector<Case> cases = {
      // The tracer writes these calls under LibTorch's usual names.
      {"multiply", [=](const Tensor& x) { return x.multiply(is_large(x) ? 2 : 3); }},
      {"divide", [=](const Tensor& x) { return x.divide(is_large(x) ? 2 : 3); }},
      {"clip", [=](const Tensor& x) { return x.clip(0, is_large(x) ? 2 : 3); }},
      {"concat",
       [=](const Tensor& x) {
         const Tensor y = x.relu();
         return is_large(x) ? at::concat({x, y}, 1) : at::concat({y, x}, 1);
       }},
      {"the result of subtract",
       [=](const Tensor& x) {
         const Tensor y = x.subtract(1);
         return at::relu(is_large(x) ? x : y);
       }},
      // No output depends on one of the results.
      {"a dead output",
       [=](const Tensor& x) {
         const Tensor y = x.relu();
         const Tensor z = x.sigmoid();
         return is_large(x) ? y : z;
       }},
      {"a dead argument",
       [=](const Tensor& x) {
         const Tensor y = x.abs();
         const Tensor z = x.sigmoid();
         return at::relu(is_large(x) ? y : z);
       }},
      // Operations that may return their argument, but do not.
      {"to",
       [=](const Tensor& x) {
         const Tensor rounded = x.to(torch::kHalf).to(torch::kFloat);
         return at::relu(is_large(x) ? x : rounded);
       }},
      {"movedim",
       [=](const Tensor& x) {
         const Tensor y = square(x) + x.unsqueeze(1);
         const Tensor moved = y.movedim(1, 2);
         return at::relu(is_large(x) ? y : moved);
       }},
      {"flatten",
       [=](const Tensor& x) {
         const Tensor y = square(x);
         const Tensor flat = y.flatten(1).unsqueeze(2);
         return is_large(x) ? flat : y.flatten(1).unsqueeze(2).relu();
       }},
      // Other overloads of the same number of arguments.
      {"a number for a tensor",
       [=](const Tensor& x) {
         const Tensor y = x.sigmoid();
         return is_large(x) ? y * 2 : y * x;
       }},
      {"a tensor for a number",
       [=](const Tensor& x) {
         const Tensor y = x.sigmoid();
         return is_large(x) ? y * x : y * 2;
       }},
      {"a constant tensor for a number",
       [=](const Tensor& x) { return is_large(x) ? x * torch::tensor({2.0F}) : x * 2; }},
      {"a number for a list",
       [=](const Tensor& x) {
         const Tensor y = square(x.slice(1, 0, 1));
         return is_large(x) ? y.squeeze(1) : y.squeeze(torch::IntArrayRef{2});
       }},
      {"a fraction for a whole number",
       [=](const Tensor& x) {
         const Tensor y = x.to(torch::kLong);
         return (is_large(x) ? y * 2.0 : y * 2).to(torch::kFloat);
       }},
      // Strings and lists.
      {"a rounding mode",
       [=](const Tensor& x) { return at::div(x, x.exp(), is_large(x) ? "floor" : "trunc"); }},
      {"an approximation",
       [=](const Tensor& x) { return at::gelu(x, is_large(x) ? "tanh" : "none"); }},
      {"an equation",
       [=](const Tensor& x) {
         return at::einsum(is_large(x) ? "bij->bi" : "bij->bj", {square(x) + x.unsqueeze(1)});
       }},
      {"no string",
       [=](const Tensor& x) {
         using Mode = std::optional<std::string_view>;
         return at::div(x, x.exp(), is_large(x) ? Mode() : Mode("floor"));
       }},
      {"dimensions for none", [=](const Tensor& x) {
         const std::vector<std::int64_t> both = {0, 1};
         return x.sum(is_large(x) ? Dimensions(both) : Dimensions(), false);
       }}};
  for (const Case& each : cases) {
    EXPECT_THAT(refusal(each.code, 2), HasSubstr("with a batch of 100, ")) << each.name;
  }
  const Code no_end = [=](const Tensor& x) {
    using End = std::optional<std::int64_t>;
    return x.slice(0, 0, is_large(x) ? End() : End(x.size(0)));
  };
  EXPECT_THAT(refusal(no_end, 2, {.follow_batch = true}), HasSubstr("with a batch of 100, "));
}

// The sizes of the recorded batches lie on a line, which larger batches leave.
TEST_F(OnnxRehearsal, SizesThatFollowALineOnlyAtFirst) {
  const std::vector<Code> codes = {
      [](const Tensor& x) { return torch::zeros_like(x.slice(0, 0, kEnd, 10)); },
      [](const Tensor& x) { return x.slice(0, 0, kEnd, 10).var(0); },
      [](const Tensor& x) {
        const Tensor some = x.slice(0, 0, kEnd, 10);
        return some.sum(0, true).expand_as(some);
      },
      [](const Tensor& x) { return torch::ones_like(x.slice(0, -100)).sum(0); },
      [](const Tensor& x) { return x.slice(0, 100).mean(0); },
      [](const Tensor& x) { return at::cat({torch::ones_like(x.slice(0, 0, -100)), x}).sum(0); },
      [](const Tensor& x) { return x.slice(0, 50, 60).sum(0) + x; },
      [](const Tensor& x) { return x.slice(0, 0, kEnd, 10).squeeze(0); },
      [](const Tensor& x) { return at::max_pool1d(x.t().unsqueeze(0), {1}, {10}).var(2); },
      [](const Tensor& x) {
        const Tensor w = torch::ones({3, 3, 1});
        return torch::ones_like(at::conv1d(x.t().unsqueeze(0), w, {}, 10)).sum(2);
      },
      [](const Tensor& x) {
        const Tensor w = torch::ones({3, 3, 1});
        const torch::IntArrayRef stride = 10;
        return torch::ones_like(at::conv1d(x.t().unsqueeze(0), w, {}, stride, "valid")).sum(2);
      },
      [](const Tensor& x) { return torch::zeros_like(x.unfold(0, 1, 10)); },
      [](const Tensor& x) { return at::avg_pool1d(x.t().unsqueeze(0), {1}, {10}).sum(2); },
      [](const Tensor& x) { return at::cat(x.split(10), 0) + 1; },
      // No output depends on the tensor, but on its size.
      [](const Tensor& x) { return x.slice(0, 0, kEnd, 10).size(0) > 1 ? x.relu() : x.sigmoid(); }};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_THAT(refusal(codes[i], 2), HasSubstr("export_onnx: ")) << i;
    EXPECT_THAT(refusal(codes[i], 2, {.follow_batch = true, .allow_reads = true}),
                HasSubstr("export_onnx: "))
        << i;
  }
  EXPECT_THAT(
      refusal(codes[0], 2),
      HasSubstr("with a batch of 130, forward() gets different sizes in the result of aten::slice "
                "after 0 (parameter 0.weight), [13, 3] where smaller batches imply [1, 3]"));
  // One batch for each magnitude of such an end.
  EXPECT_THAT(
      refusal([](const Tensor& x) { return x.slice(0, 0, 60'000); }, 2),
      HasSubstr(
          "with a batch of 65537, forward() gets different sizes in the result of aten::slice "
          "after 0 (parameter 0.weight), [60000, 3] where smaller batches imply [65537, 3]"));
  EXPECT_THAT(
      refusal([](const Tensor& x) { return x.slice(0, 0, 100'000); }, 2),
      HasSubstr(
          "with a batch of 1000000, forward() gets different sizes in the result of aten::slice "
          "after 0 (parameter 0.weight), [100000, 3] where smaller batches imply [1000000, 3]"));
}

// The values are alike in all runs that are recorded.
TEST_F(OnnxRehearsal, SizesThatAreReadOutOfValues) {
  const auto choose = [](const Tensor& x, bool condition) { return condition ? x.relu() : x; };
  const std::vector<Code> codes = {
      [=](const Tensor& x) { return choose(x, (x > 100).nonzero().size(0) > 0); },
      [=](const Tensor& x) { return choose(x, (x > 100).argwhere().size(0) > 0); },
      [=](const Tensor& x) { return choose(x, at::where(x > 100)[0].size(0) > 0); },
      [=](const Tensor& x) { return choose(x, at::nonzero_numpy(x > 100)[0].size(0) > 0); },
      [=](const Tensor& x) { return choose(x, x.masked_select(x > 100).numel() > 0); },
      [=](const Tensor& x) { return choose(x, x.index({x > 100}).size(0) > 0); },
      [=](const Tensor& x) { return choose(x, x.index({(x > 100).to(torch::kByte)}).size(0) > 0); },
      [=](const Tensor& x) { return choose(x, std::get<0>(at::_unique(x > 100)).size(0) > 1); },
      [=](const Tensor& x) { return choose(x, std::get<0>(at::_unique2(x > 100)).size(0) > 1); },
      [=](const Tensor& x) {
        return choose(x, std::get<0>(at::unique_consecutive(x > 100)).size(0) > 1);
      },
      [=](const Tensor& x) {
        const Tensor large = (x > 100).to(torch::kLong).flatten();
        return choose(x, large.bincount().size(0) > 1);
      },
      [=](const Tensor& x) {
        const Tensor large = (x > 100).to(torch::kLong).flatten();
        return choose(x, at::one_hot(large).size(-1) > 1);
      },
      [=](const Tensor& x) {
        const Tensor large = (x > 100).to(torch::kLong).flatten();
        return choose(x, at::repeat_interleave(large).size(0) > 0);
      },
      [=](const Tensor& x) {
        const Tensor large = (x > 100).to(torch::kLong).sum(1);
        return choose(x, x.repeat_interleave(large, 0).size(0) > 0);
      }};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (const bool dynamic : {true, false}) {
      EXPECT_THAT(refusal(codes[i], 2, {.dynamic_batch = dynamic}), HasSubstr("allow_reads")) << i;
    }
  }
  EXPECT_THAT(refusal(codes[0], 2),
              HasSubstr("forward() reads values out of a tensor as a size, by aten::nonzero, after "
                        "0 (parameter 0.weight), and a trace cannot see what depends on it"));
  // The values do not decide these sizes.
  const std::vector<Code> fixed = {
      [](const Tensor& x) { return x.index({torch::tensor({1, 0}), torch::tensor({0, 1})}); },
      [](const Tensor& x) { return x.index({x.argmax(0)}); },
      [](const Tensor& x) { return at::where(x > 0.5, x, -x); },
      [](const Tensor& x) { return x.masked_select(torch::tensor({true, false, true})); },
      [](const Tensor& x) { return at::one_hot(x.argmax(1), 3); },
      [](const Tensor& x) { return x.repeat_interleave(2, 1); },
      [](const Tensor& x) { return x + torch::tensor({0, 3, 4}).nonzero().sum(); }};
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    EXPECT_THAT(refusal(fixed[i], 2, {.dynamic_batch = false}),
                Not(HasSubstr("reads values out of a tensor")))
        << i;
  }
}

// The graphs of all batches are alike.
TEST_F(OnnxRehearsal, AnUnusedCallForOneOfTheRecordedBatches) {
  const Code code = [](const Tensor& x) {
    if (x.size(0) == 1) x.abs();
    return x.relu();
  };
  EXPECT_THAT(refusal(code, 2), HasSubstr("with a batch of 1, forward() takes a different path in "
                                          "operations on which no output depends, at aten::abs"));
}

// What forward() does after an exception is a branch, which a trace does not show.
TEST_F(OnnxRehearsal, ExceptionsThatForwardCatches) {
  const auto fails = [](const Tensor& x) { return x.add(torch::ones({2, 7})); };
  const Code always = [&](const Tensor& x) {
    try {
      fails(x);
    } catch (const c10::Error&) {
    }
    return x * 2;
  };
  const char* const caught =
      "forward() catches an exception of an operation of LibTorch after 0 (parameter 0.weight); a "
      "trace cannot record how the exception is handled: check the operation's arguments before "
      "the call";
  EXPECT_THAT(refusal(always, 3), HasSubstr(caught));
  EXPECT_THAT(refusal(always, 1), HasSubstr(caught));
  const Code with_one_sample = [&](const Tensor& x) {
    try {
      return x.size(0) == 1 ? fails(x) : x * 2;
    } catch (const std::exception&) {
      return x * 3;
    }
  };
  EXPECT_THAT(refusal(with_one_sample, 3), HasSubstr(caught));
  // Batches that are only rehearsed: what differs from the trace is an exception, too.
  const Code with_many = [&](const Tensor& x) {
    Tensor y = x;
    try {
      if (x.size(0) > 99) y = x.exp();
    } catch (...) {
    }
    return y * 2;
  };
  EXPECT_THAT(refusal(with_many, 3),
              HasSubstr("with a batch of 100, forward() takes a different path after 0 (parameter "
                        "0.weight): it calls aten::exp where aten::mul was recorded"));
  const Code fails_with_many = [&](const Tensor& x) {
    try {
      return x.size(0) > 99 ? x.mul(torch::ones({2, 7})) : x.mul(torch::ones({1, 3}));
    } catch (const std::exception&) {
      return x.mul(torch::ones({1, 3}));
    }
  };
  EXPECT_NE(refusal(fails_with_many, 3), "nothing was refused");
}

// Only other values than those of the example reach the exception.
TEST_F(OnnxRehearsal, ExceptionsForOtherValues) {
  torch::nn::Module net;
  const Tensor table = net.register_parameter("table", torch::rand({10, 4}));
  const OnnxForward forward = [&](const std::vector<Tensor>& x) -> std::vector<Tensor> {
    try {
      return {torch::embedding(table, x[0]).sum(1)};
    } catch (const c10::Error&) {
      return {x[0].to(torch::kFloat)};
    }
  };
  EXPECT_THAT(refusal_of(net, forward, {torch::tensor({{9, 8}, {9, 9}})}),
              HasSubstr("forward() catches an exception of an operation"));
}

// The error shows why forward() throws its own exception: because of the difference, if there was
// one, otherwise because of what the exception says.
TEST_F(OnnxRehearsal, ExceptionsThatForwardReplaces) {
  const auto replaced = [](const Code& code) -> Code {
    return [code](const Tensor& x) {
      try {
        return code(x);
      } catch (const std::exception&) {
        throw std::runtime_error("at most 99 samples");
      }
    };
  };
  EXPECT_THAT(
      refusal(replaced([](const Tensor& x) { return x.size(0) > 99 ? x.exp() : x.relu(); }), 3),
      HasSubstr("with a batch of 100, forward() takes a different path after 0 (parameter "
                "0.weight): it calls aten::exp where aten::relu was recorded"));
  // item() of several elements fails in a rehearsal as well.
  EXPECT_THAT(refusal(replaced([](const Tensor& x) {
                        if (x.size(0) > 99) x.item();
                        return x.relu();
                      }),
                      3),
              HasSubstr("forward() fails with a batch of 100 after 0 (parameter 0.weight): at most "
                        "99 samples; export with dynamic_batch = false"));
  const Code reads = [](const Tensor& x) {
    return x.sum().item<float>() > 1e9F ? x.relu() : x.sigmoid();
  };
  EXPECT_EQ(refusal(replaced(reads), 3, {.allow_reads = true}), "nothing was refused");
}

// What no output depends on may follow the batch in ways that a model could not.
TEST_F(OnnxRehearsal, CallsThatAreAlikeOrMatterToNoOutput) {
  const std::vector<Code> codes = {
      [](const Tensor& x) { return x.multiply(2).divide(3).subtract(1).clip(0, 1); },
      [](const Tensor& x) { return at::concat({x.swapaxes(0, 1).moveaxis(0, 1), x}, 1); },
      [](const Tensor& x) { return torch::zeros_like(x).copy_(x, /*non_blocking=*/true); },
      [](const Tensor& x) { return x.greater(0).logical_and(x.less_equal(1)).to(torch::kFloat); },
      [](const Tensor& x) {
        const Tensor unused = x.mul(x.size(0)).add(1.0 / static_cast<double>(x.size(0)));
        return x.relu();
      },
      [](const Tensor& x) {
        const Tensor unused = x.exp() + 1;
        return at::div(x, x.exp(), "floor").sum(torch::IntArrayRef{1}, true);
      }};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (const std::int64_t example : {1, 3}) {
      EXPECT_EQ(refusal(codes[i], example), "nothing was refused") << i << ' ' << example;
    }
  }
}

}  // namespace
}  // namespace lockstep
