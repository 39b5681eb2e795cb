// Batch normalization of programs in both modes, in regions and after run_decompositions(), and
// programs inside of other modules.
#include <lockstep/program/program.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/program/split.h>
#include <tests/program/net_file.h>
#include <tests/program/whole_net.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::message_of;
using testing_support::NetFile;
using testing_support::WholeNet;

constexpr const char* kNormClass = "torch.nn.modules.batchnorm.BatchNorm1d";

class ProgramModesTest : public testing::Test {
 protected:
  ProgramModesTest() { at::set_num_threads(1); }
  Program load(const NetFile& file) {
    file.write(path());
    return Program(path());
  }
  std::filesystem::path path() const { return folder_ / "net.pt2"; }
  static int count_of(const Program& net) {
    return net->named_buffers()["norm.num_batches_tracked"].item<int>();
  }

  const torch::Tensor x_ = torch::linspace(-1, 1, 30).view({5, 6});

 private:
  testing_support::TemporaryDirectory folder_;
};

// The parameters, buffers and input of a net with a batch normalization `norm`.
struct NormNet {
  NetFile file{};
  std::string mean = file.buffer("norm.running_mean", torch::zeros({6}));
  std::string variance = file.buffer("norm.running_var", torch::ones({6}));
  std::string count = file.buffer("norm.num_batches_tracked", torch::tensor(0));
  std::string x = file.input("x", {0, 6});
};

std::string add_norm(NetFile& file, const std::string& x, const std::string& mean,
                     const std::string& variance, bool training, const std::string& path = "norm") {
  return file.call("torch.ops.aten.batch_norm.default",
                   {{"input", NetFile::tensor(x)},
                    {"weight", {{"as_none", true}}},
                    {"bias", {{"as_none", true}}},
                    {"running_mean", NetFile::tensor(mean)},
                    {"running_var", NetFile::tensor(variance)},
                    {"training", NetFile::truth(training)},
                    {"momentum", NetFile::real(0.1)},
                    {"eps", NetFile::real(1e-5)},
                    {"cudnn_enabled", NetFile::truth(false)}},
                   {0, 6}, path, kNormClass);
}

// A region of torch.autocast() that calls `inner` with `operands`.
NetFile::Arguments autocast_region(const NetFile& inner, const std::vector<std::string>& operands) {
  NetFile::Arguments arguments = {{"", {{"as_string", "cpu"}}},
                                  {"", {{"as_none", true}}},
                                  {"", NetFile::truth(false)},
                                  {"", NetFile::truth(false)},
                                  {"", inner.graph()}};
  for (const std::string& operand : operands) arguments.emplace_back("", NetFile::tensor(operand));
  return arguments;
}

// Both regions call one module, whose counter passes from one to the other.
TEST_F(ProgramModesTest, CountsBatchesInRegionsOnlyInTraining) {
  NormNet net;
  std::vector<std::string> values = {net.x, net.count};
  for (const bool returns_count : {true, false}) {
    NetFile inner;
    const auto x = inner.input("x", {0, 6}), count = inner.input("count", {});
    const auto mean = inner.input("mean", {6}), variance = inner.input("variance", {6});
    const auto next = inner.call("torch.ops.aten.add_.Tensor",
                                 {{"self", NetFile::tensor(count)}, {"other", NetFile::integer(1)}},
                                 {}, "norm", kNormClass);
    inner.output(add_norm(inner, x, mean, variance, true));
    if (returns_count) inner.output(next);
    values = net.file.calls("torch.ops.higher_order.wrap_with_autocast",
                            autocast_region(inner, {values[0], values[1], net.mean, net.variance}),
                            returns_count ? 2 : 1, {0, 6}, /*as_list=*/true);
  }
  net.file.output(values[0]);
  Program program = load(net.file);
  program->eval();
  program->forward(x_);
  EXPECT_EQ(count_of(program), 0);
  program->train();
  program->forward(x_);
  EXPECT_EQ(count_of(program), 2);
}

// In evaluation mode Python does not count, and the region does not get the counter.
TEST_F(ProgramModesTest, CountsBatchesInRegionsOfAnEvaluation) {
  for (const char* region : {"wrap_with_autocast", "wrap_with_set_grad_enabled"}) {
    NormNet net;
    NetFile inner;
    const auto x = inner.input("x", {0, 6});
    const auto mean = inner.input("mean", {6}), variance = inner.input("variance", {6});
    inner.output(add_norm(inner, x, mean, variance, false));
    auto arguments = autocast_region(inner, {net.x, net.mean, net.variance});
    if (std::string(region) == "wrap_with_set_grad_enabled") {
      arguments.erase(arguments.begin(), arguments.begin() + 3);  // one truth value is left
    }
    net.file.output(net.file
                        .calls(std::string("torch.ops.higher_order.") + region, arguments, 1,
                               {0, 6}, /*as_list=*/true)
                        .front());
    Program program = load(net.file);
    EXPECT_FALSE(program->is_training());
    program->forward(x_);
    EXPECT_EQ(count_of(program), 0) << region;
    program->train();
    program->forward(x_);
    EXPECT_EQ(count_of(program), 1) << region;
    EXPECT_FALSE(torch::equal(program->named_buffers()["norm.running_mean"], torch::zeros({6})));
  }
}

constexpr const char* kNames[] = {"first", "second"};

// Two batch normalizations of an export in evaluation mode, with calls between them, so that the
// net can be cut there.
NetFile two_norms(bool in_regions) {
  NetFile file;
  std::string value = file.input("x", {0, 6});
  for (const std::string name : kNames) {
    const auto mean = file.buffer(name + ".running_mean", torch::zeros({6}));
    const auto variance = file.buffer(name + ".running_var", torch::ones({6}));
    file.buffer(name + ".num_batches_tracked", torch::tensor(0));
    if (in_regions) {
      NetFile inner;
      const auto x = inner.input("x", {0, 6});
      const auto inner_mean = inner.input("mean", {6}),
                 inner_variance = inner.input("variance", {6});
      inner.output(add_norm(inner, x, inner_mean, inner_variance, false, name));
      value = file.calls("torch.ops.higher_order.wrap_with_autocast",
                         autocast_region(inner, {value, mean, variance}), 1, {0, 6},
                         /*as_list=*/true)
                  .front();
    } else {
      value = add_norm(file, value, mean, variance, false, name);
    }
    for (int i = 0; i < 2; ++i) {
      value = file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(value)}}, {0, 6});
    }
  }
  file.output(value);
  return file;
}

TEST_F(ProgramModesTest, CountsBatchesInStagesOfAnEvaluation) {
  for (const bool in_regions : {false, true}) {
    const Program whole = load(two_norms(in_regions));
    const std::vector<Program> stages = split(whole, 2);
    ASSERT_EQ(stages.size(), 2U);
    for (const bool training : {false, true, true}) {
      torch::Tensor value = x_;
      for (Program stage : stages) {
        stage->train(training);
        value = stage->forward(value).first_tensor();
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const auto buffers = stages[i]->named_buffers();
      EXPECT_EQ(buffers.size(), 3U) << "those of one normalization";
      const torch::Tensor* count = buffers.find(std::string(kNames[i]) + ".num_batches_tracked");
      ASSERT_NE(count, nullptr) << kNames[i];
      EXPECT_EQ(count->item<int>(), 2) << kNames[i];
    }
  }
}

TEST_F(ProgramModesTest, NamesTheClassesOfModulesInRegions) {
  const Program whole = load(two_norms(/*in_regions=*/true));
  const std::vector<Program> stages = split(whole, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(whole->named_modules()[kNames[i]]->name(), "BatchNorm1d");
    EXPECT_EQ(stages[i]->named_modules()[kNames[i]]->name(), "BatchNorm1d");
  }
}

// run_decompositions() replaces changes in place by outputs that are written to the buffers.
TEST_F(ProgramModesTest, FollowsModesAfterDecompositions) {
  NormNet net;
  const auto next =
      net.file.call("torch.ops.aten.add.Tensor",
                    {{"self", NetFile::tensor(net.count)}, {"other", NetFile::integer(1)}}, {},
                    "norm", kNormClass);
  const auto results = net.file.calls("torch.ops.aten._native_batch_norm_legit_functional.default",
                                      {{"input", NetFile::tensor(net.x)},
                                       {"weight", {{"as_none", true}}},
                                       {"bias", {{"as_none", true}}},
                                       {"running_mean", NetFile::tensor(net.mean)},
                                       {"running_var", NetFile::tensor(net.variance)},
                                       {"training", NetFile::truth(true)},
                                       {"momentum", NetFile::real(0.1)},
                                       {"eps", NetFile::real(1e-5)}},
                                      5, {0, 6}, /*as_list=*/false, "norm", kNormClass);
  net.file.write_to_buffer(results[3], "norm.running_mean");
  net.file.write_to_buffer(results[4], "norm.running_var");
  net.file.write_to_buffer(next, "norm.num_batches_tracked");
  net.file.output(results[0]);
  Program program = load(net.file);
  EXPECT_TRUE(program->is_training());
  EXPECT_THAT(program->fixed_modes(), testing::IsEmpty());
  const torch::Tensor mean = torch::zeros({6}), variance = torch::ones({6});
  for (const bool training : {true, false, true}) {
    program->train(training);
    const torch::Tensor expected =
        torch::batch_norm(x_, {}, {}, mean, variance, training, 0.1, 1e-5, false);
    EXPECT_TRUE(torch::equal(program->forward(x_), expected)) << training;
    EXPECT_TRUE(torch::equal(program->named_buffers()["norm.running_mean"], mean)) << training;
    EXPECT_TRUE(torch::equal(program->named_buffers()["norm.running_var"], variance));
  }
  EXPECT_EQ(count_of(program), 2) << "evaluation does not count";
}

TEST_F(ProgramModesTest, NamesTheCallsThatCannotFollow) {
  NormNet net;
  const auto results = net.file.calls("torch.ops.aten._native_batch_norm_legit_no_training.default",
                                      {{"input", NetFile::tensor(net.x)},
                                       {"weight", {{"as_none", true}}},
                                       {"bias", {{"as_none", true}}},
                                       {"running_mean", NetFile::tensor(net.mean)},
                                       {"running_var", NetFile::tensor(net.variance)},
                                       {"momentum", NetFile::real(0.1)},
                                       {"eps", NetFile::real(1e-5)}},
                                      3, {0, 6}, /*as_list=*/false, "norm", kNormClass);
  net.file.output(results[0]);
  EXPECT_THAT(
      load(net.file)->fixed_modes(),
      testing::ElementsAre("aten::_native_batch_norm_legit_no_training at net.py:1: x = call()"));
}

// The dropout of the second stage shows the mode of the attention in the first.
TEST_F(ProgramModesTest, KnowsTheModeOfTheExportInStages) {
  for (const bool training : {true, false}) {
    NetFile file;
    const auto x = file.input("x", {0, 6});
    const auto attention = file.call(
        "torch.ops.aten.scaled_dot_product_attention.default",
        {{"query", NetFile::tensor(x)}, {"key", NetFile::tensor(x)}, {"value", NetFile::tensor(x)}},
        {0, 6}, "attention");
    file.output(file.call("torch.ops.aten.dropout.default",
                          {{"input", NetFile::tensor(attention)},
                           {"p", NetFile::real(0)},
                           {"train", NetFile::truth(training)}},
                          {0, 6}, "drop"));
    const Program whole = load(file);
    const std::size_t fixed = training ? 0 : 1;
    EXPECT_EQ(whole->fixed_modes().size(), fixed);
    EXPECT_EQ(split(whole, 2)[0]->fixed_modes().size(), fixed);
  }
}

TEST_F(ProgramModesTest, IsClonedInsideAnotherModule) {
  testing_support::small_classifier().write(path());
  const auto net = std::make_shared<WholeNet>(path());
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) parameter.mul_(0.5);
  }
  net->program->forward(x_);  // changes the buffers
  net->program->named_modules()["drop"]->eval();
  const torch::Tensor weight = net->program->named_parameters()["first.weight"].clone();
  const auto copy = std::dynamic_pointer_cast<WholeNet>(net->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(torch::equal(net->program->named_parameters()["first.weight"], weight))
      << "cloning does not change the original";
  const auto parameters = copy->program->named_parameters();
  for (const auto& item : net->program->named_parameters()) {
    EXPECT_TRUE(torch::equal(parameters[item.key()], item.value())) << item.key();
    EXPECT_FALSE(parameters[item.key()].is_alias_of(item.value())) << item.key();
    EXPECT_TRUE(parameters[item.key()].requires_grad() && parameters[item.key()].is_leaf());
  }
  EXPECT_TRUE(parameters["first.weight"].is_same(parameters["last.weight"]));
  EXPECT_EQ(count_of(copy->program), 1);
  EXPECT_FALSE(copy->program->named_modules()["drop"]->is_training());
  EXPECT_TRUE(copy->program->named_modules()["norm"]->is_training());
  const torch::Tensor logits = copy->program->forward(x_)["logits"];
  EXPECT_TRUE(torch::equal(net->program->forward(x_)["logits"], logits));
  logits.sum().backward();
  EXPECT_TRUE(parameters["first.weight"].grad().defined());
  EXPECT_FALSE(net->program->named_parameters()["first.weight"].grad().defined());

  net->to(torch::kDouble);
  const auto wide = std::dynamic_pointer_cast<WholeNet>(net->clone());
  EXPECT_EQ(wide->program->named_parameters()["first.weight"].scalar_type(), torch::kDouble);
  EXPECT_TRUE(torch::equal(wide->program->forward(x_.to(torch::kDouble))["logits"],
                           net->program->forward(x_.to(torch::kDouble))["logits"]));
}

TEST_F(ProgramModesTest, RunsOnSeveralThreads) {
  testing_support::small_classifier().write(path());
  Program net(path());
  net->eval();
  const torch::Tensor expected = net->forward(x_)["logits"];
  std::vector<int> equal(4);
  std::vector<std::thread> threads;
  for (int& count : equal) {
    threads.emplace_back([&] {
      at::set_num_threads(1);
      for (int i = 0; i < 50; ++i) count += torch::equal(net->forward(x_)["logits"], expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

TEST_F(ProgramModesTest, OutputsOutliveTheProgram) {
  testing_support::small_classifier().write(path());
  ProgramOutput output;
  {
    Program net(path());
    output = net->forward(x_);
  }
  EXPECT_EQ(output.names(), (std::vector<std::string>{"logits", "hidden"}));
  EXPECT_EQ(output["logits"].tensor().size(0), 5);
}

}  // namespace
}  // namespace lockstep
