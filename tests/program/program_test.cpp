// Programs as modules, compared with LibTorch's own functions.
#include <lockstep/program/program.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <tests/program/net_file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::logits_of;
using testing_support::message_of;
using testing_support::NetFile;
using testing_support::small_classifier;

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() { at::set_num_threads(1); }

  Program classifier() {
    small_classifier().write(path());
    return Program(path());
  }
  std::filesystem::path path() const { return folder_ / "net.pt2"; }
  // A message without the folder of the test.
  template <class Function>
  std::string refusal(const Function& function) const {
    std::string message = message_of<Error>(function);
    const std::string where = path().string();
    const auto at = message.find(where);
    if (at != std::string::npos) message.replace(at, where.size(), "net.pt2");
    return message;
  }

  const torch::Tensor x_ = torch::linspace(-1, 1, 30).view({5, 6});

 private:
  testing_support::TemporaryDirectory folder_;
};

std::vector<std::string> names_of(const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  return tensors.keys();
}

TEST_F(ProgramTest, HasTheNamesOfPython) {
  const Program net = classifier();
  EXPECT_EQ(names_of(net->named_parameters()),
            (std::vector<std::string>{"first.weight", "first.bias", "norm.weight", "norm.bias",
                                      "last.weight"}));
  EXPECT_EQ(names_of(net->named_buffers()),
            (std::vector<std::string>{"norm.running_mean", "norm.running_var",
                                      "norm.num_batches_tracked"}));
  EXPECT_TRUE(
      net->named_parameters()["first.weight"].is_same(net->named_parameters()["last.weight"]));
  for (const auto& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_TRUE(parameter.is_leaf());
  }
  ASSERT_EQ(net->inputs().size(), 1U);
  EXPECT_EQ(net->inputs()[0].name, "x");
  EXPECT_EQ(net->inputs()[0].type, "float32[s0, 6]");
  EXPECT_EQ(net->output_structure().description(), "{logits: None, hidden: None}");
}

TEST_F(ProgramTest, ComputesWhatItsOperatorsCompute) {
  for (const bool training : {true, false}) {
    Program net = classifier();
    const auto expected = Program(std::dynamic_pointer_cast<ProgramImpl>(net->clone()));
    net->train(training);
    torch::manual_seed(5);
    const torch::Tensor logits = net->forward(x_)["logits"];
    logits.square().mean().backward();
    torch::manual_seed(5);
    const torch::Tensor wanted = logits_of(*expected, x_, training);
    wanted.square().mean().backward();
    EXPECT_TRUE(torch::equal(logits, wanted)) << training;
    for (const auto& item : expected->named_parameters()) {
      EXPECT_TRUE(torch::equal(net->named_parameters()[item.key()].grad(), item.value().grad()))
          << item.key();
    }
    for (const auto& item : expected->named_buffers()) {
      EXPECT_TRUE(torch::equal(net->named_buffers()[item.key()], item.value())) << item.key();
    }
    EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int>(), training ? 1 : 0);
  }
}

// A single module can be in another mode, as frozen batch normalisation is.
TEST_F(ProgramTest, HasTheModeOfEachModule) {
  Program net = classifier();
  EXPECT_TRUE(net->is_training());
  net->named_modules()["norm"]->eval();
  EXPECT_FALSE(torch::equal(net->forward(x_)["logits"], net->forward(x_)["logits"]))
      << "dropout is active";
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int>(), 0);
  net->named_modules()["drop"]->eval();
  EXPECT_TRUE(torch::equal(net->forward(x_)["logits"], net->forward(x_)["logits"]));
  net->train();
  net->forward(x_);
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int>(), 1);
}

TEST_F(ProgramTest, TakesArgumentsByPlaceAndName) {
  Program net = classifier();
  net->eval();
  const torch::Tensor logits = net->forward(x_)["logits"];
  EXPECT_TRUE(torch::equal(net->forward({{"x", x_}})["logits"], logits));
  EXPECT_TRUE(torch::equal(net->forward(std::vector<torch::Tensor>{x_})["logits"], logits));
  EXPECT_TRUE(torch::equal(net->run({x_})["logits"], logits));
  EXPECT_EQ(refusal([&] { net->forward({{"y", x_}}); }), "net.pt2: the input 'x' is missing");
  EXPECT_EQ(refusal([&] { net->forward({{"x", x_}, {"xs", x_}}); }),
            "net.pt2: there is no input 'xs'");
  EXPECT_EQ(refusal([&] { net->forward(x_, x_); }), "net.pt2: expected 1 input (x), got 2");
  EXPECT_EQ(refusal([&] { net->run({std::int64_t{3}}); }),
            "net.pt2: the input 'x' must be a tensor, got Int");
}

TEST_F(ProgramTest, ChecksTheShapesOfArguments) {
  Program net = classifier();
  EXPECT_EQ(refusal([&] { net->forward(x_.to(torch::kDouble)); }),
            "net.pt2: the input 'x' must be float32, got float64");
  EXPECT_EQ(refusal([&] { net->forward(x_.view({30})); }),
            "net.pt2: the input 'x' must have 2 dimensions [s0, 6], got [30]");
  EXPECT_EQ(refusal([&] { net->forward(x_.view({6, 5})); }),
            "net.pt2: the input 'x' must have size 6 in dimension 1, got 5; export the model with "
            "this dimension in dynamic_shapes to allow others");
  EXPECT_EQ(refusal([&] { net->forward(torch::zeros({65, 6})); }),
            "net.pt2: the input 'x' must have a size of at most 64 in dimension 0, got 65");
  net->eval();
  EXPECT_EQ(net->forward(torch::zeros({64, 6}))["logits"].tensor().size(0), 64);
  EXPECT_EQ(net->forward(torch::zeros({1, 6}))["logits"].tensor().size(0), 1)
      << "as in Python, below the 2 that every export assumes";
}

TEST_F(ProgramTest, GivesItsOutputsTheirStructure) {
  Program net = classifier();
  const ProgramOutput output = net->forward(x_);
  EXPECT_EQ(output.size(), 2U);
  EXPECT_EQ(output.names(), (std::vector<std::string>{"logits", "hidden"}));
  EXPECT_TRUE(output.contains("hidden"));
  EXPECT_FALSE(output.contains("loss"));
  EXPECT_TRUE(output[0].tensor().is_same(output["logits"].tensor()));
  EXPECT_TRUE(output.first_tensor().is_same(output[0].tensor()));
  EXPECT_EQ(output.description(), "{logits: a tensor, hidden: a tensor}");
  EXPECT_EQ(message_of<ConfigError>([&] { output.tensor(); }),
            "the program returns {logits: a tensor, hidden: a tensor}, not a tensor; choose one of "
            "its values by name or index");
  EXPECT_EQ(message_of<ConfigError>([&] { output["logit"]; }),
            "the program returns {logits: a tensor, hidden: a tensor}, which has no 'logit'; did "
            "you mean 'logits'?");
  EXPECT_EQ(message_of<ConfigError>([&] { output[2]; }),
            "the program returns {logits: a tensor, hidden: a tensor}, which has no value 2");
}

// A model that gets no labels often returns None as its loss.
TEST_F(ProgramTest, ReturnsNoneInItsPlace) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  file.output_none("loss");
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(x)}}, {0, 6}),
              "logits");
  file.write(path());
  Program net(path());
  const ProgramOutput output = net->forward(x_);
  EXPECT_EQ(output.description(), "{loss: None, logits: a tensor}");
  EXPECT_TRUE(torch::equal(output["logits"], -x_));
}

TEST_F(ProgramTest, TakesTheValuesThatTheExportHasFixed) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  file.fixed_input("use_cache", NetFile::truth(false));
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(x)}}, {0, 6}));
  file.write(path());
  Program net(path());
  EXPECT_TRUE(torch::equal(net->forward(x_), -x_));
  EXPECT_TRUE(torch::equal(net->forward({{"x", x_}, {"use_cache", false}}), -x_));
  EXPECT_EQ(message_of<ConfigError>([&] { net->forward({{"x", x_}, {"use_cache", true}}); }),
            path().string() +
                ": the export has fixed the input 'use_cache' to False, got True; export the model "
                "with the value that you need");
  EXPECT_THROW(net->forward({{"x", x_}, {"use_cache", x_}}), ConfigError);
}

TEST_F(ProgramTest, IsCopiedWithItsModes) {
  Program net = classifier();
  net->named_modules()["norm"]->eval();
  const Program copy(std::dynamic_pointer_cast<ProgramImpl>(net->clone()));
  EXPECT_EQ(names_of(copy->named_parameters()), names_of(net->named_parameters()));
  for (const auto& item : net->named_parameters()) {
    EXPECT_TRUE(torch::equal(copy->named_parameters()[item.key()], item.value()));
    EXPECT_FALSE(copy->named_parameters()[item.key()].is_alias_of(item.value()));
  }
  EXPECT_TRUE(
      copy->named_parameters()["first.weight"].is_same(copy->named_parameters()["last.weight"]));
  EXPECT_FALSE(copy->named_modules()["norm"]->is_training());
  EXPECT_TRUE(copy->named_modules()["drop"]->is_training());
  torch::manual_seed(1);
  const torch::Tensor logits = net->forward(x_)["logits"];
  torch::manual_seed(1);
  EXPECT_TRUE(torch::equal(copy.ptr()->forward(x_)["logits"], logits));
}

TEST_F(ProgramTest, FollowsItsParametersToAnotherType) {
  Program net = classifier();
  net->eval();
  const torch::Tensor logits = net->forward(x_)["logits"];
  net->to(torch::kDouble);
  const torch::Tensor wide = net->forward(x_.to(torch::kDouble))["logits"];
  EXPECT_EQ(wide.scalar_type(), torch::kDouble);
  EXPECT_TRUE(torch::allclose(wide.to(torch::kFloat), logits));
  EXPECT_EQ(refusal([&] { net->forward(x_); }),
            "net.pt2: the input 'x' must be float64, got float32");
}

TEST_F(ProgramTest, NamesTheCallThatFails) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  file.output(file.call("torch.ops.aten.view.default",
                        {{"self", NetFile::tensor(x)}, {"size", {{"as_ints", {4, 5}}}}}, {4, 5}));
  file.write(path());
  Program net(path());
  EXPECT_THAT(refusal([&] { net->forward(x_); }),
              testing::StartsWith("net.pt2: aten::view at net.py:1: x = call(): shape '[4, 5]' is "
                                  "invalid for input of size 30"));
}

TEST_F(ProgramTest, CallsOnlyOperatorsThatAreAllowed) {
  const auto refusal_of = [&](const std::string& target) {
    NetFile file;
    const auto x = file.input("x", {0, 6});
    file.output(file.call(target, {{"self", NetFile::tensor(x)}}, {0, 6}));
    file.write(path());
    return refusal([&] { const Program net(path()); });
  };
  EXPECT_EQ(refusal_of("torch.ops.aten.relu.default"), "nothing was thrown");
  EXPECT_THAT(
      refusal_of("torch.ops.aten.no_such_thing.default"),
      testing::StartsWith("net.pt2: aten::no_such_thing at net.py:1: x = call(): LibTorch "));
  EXPECT_EQ(
      refusal_of("torch.ops.aten.from_file.default"),
      "net.pt2: aten::from_file at net.py:1: x = call(): this operator is refused, because it "
      "acts on files");
  EXPECT_EQ(refusal_of("torch.ops.prim.device.default"),
            "net.pt2: prim::device at net.py:1: x = call(): operators of 'prim' are refused; name "
            "this namespace in ProgramOptions::namespaces if you trust the file and the library "
            "that defines them");
  EXPECT_EQ(refusal_of("os.system"),
            "net.pt2: os.system at net.py:1: x = call(): this function is not supported");
  EXPECT_EQ(refusal_of("torch.ops.higher_order.flex_attention"),
            "net.pt2: higher_order::flex_attention at net.py:1: x = call(): this higher-order "
            "operator is not supported");
}

// DropPath returns its input in evaluation mode; the graph of an export in training mode does not
// show it.
TEST_F(ProgramTest, SkipsStochasticDepthInEvaluation) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  const std::string type = "timm.layers.drop.DropPath";
  // The probability to keep a sample is 0.
  const auto mask =
      file.call("torch.ops.aten.bernoulli.p",
                {{"self", NetFile::tensor(x)}, {"p", NetFile::real(0)}}, {0, 6}, "path", type);
  const auto less = file.call("torch.ops.aten.mul.Tensor",
                              {{"self", NetFile::tensor(x)}, {"other", NetFile::tensor(mask)}},
                              {0, 6}, "path", type);
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(less)}}, {0, 6}));
  file.write(path());
  Program net(path());
  EXPECT_TRUE(torch::equal(net->forward(x_), torch::zeros({5, 6})));
  net->eval();
  EXPECT_TRUE(torch::equal(net->forward(x_), -x_));
  net->train();
  EXPECT_TRUE(torch::equal(net->forward(x_), torch::zeros({5, 6})));
}

// Python checks these conditions before each call.
TEST_F(ProgramTest, ChecksWhatTheExportReliedOn) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(x)}}, {0, 6}));
  const auto with = [&](const std::string& guard) {
    file.guard(guard);
    file.write(path());
    return Program(path());
  };
  Program net = with("math.trunc(1.5*torch.sym_float(L['x'].size()[0])) == 7");
  EXPECT_TRUE(torch::equal(net->forward(x_), -x_));
  EXPECT_EQ(refusal([&] { net->forward(torch::zeros({6, 6})); }),
            "net.pt2: the arguments do not fulfil what the export relied on: "
            "math.trunc(1.5*torch.sym_float(x.size()[0])) == 7");
  for (const char* guard :
       {"4 < L['x'].size()[0] < 6", "not L['x'].size()[0] == 6 and 2**3 == 8", "(7 // 2) % 2 == 1",
        "-L['x'].size()[0] + 1 != 4 or False", "Max(2, L['x'].size()[0]) >= 5",
        "L['x'].stride()[0]*1.0 / 2 == 3.0", "1e-1 <= 0.5 and True"}) {
    EXPECT_EQ(refusal([&] { with(guard)->forward(x_); }), "nothing was thrown") << guard;
  }
  for (const char* guard : {"L['x'].size()[0] > 5", "L['x'].size()[0] < 6 < 6", "not True",
                            "True and 1 == 2", "7 % 2 == 0"}) {
    EXPECT_THAT(refusal([&] { with(guard)->forward(x_); }),
                testing::StartsWith("net.pt2: the arguments do not fulfil"))
        << guard;
  }
  for (const char* guard :
       {"", "x == 1", "L['y'].size()[0] == 1", "os.system('x')", "(1 == 1", "1 == 1)",
        "L['x'].data()[0] == 1", "1 +", "99999999999999999999 == 1"}) {
    EXPECT_THAT(refusal([&] { with(guard); }),
                testing::EndsWith("' of the export is not supported"))
        << guard;
  }
}

TEST_F(ProgramTest, IsCopiedWithTheMemoryThatTensorsShare) {
  NetFile file;
  const torch::Tensor whole = torch::zeros({2, 6});
  const auto all = file.buffer("all", whole);
  const auto first = file.buffer("first", whole[0]);
  const auto x = file.input("x", {0, 6});
  file.call("torch.ops.aten.add_.Tensor",
            {{"self", NetFile::tensor(all)}, {"other", NetFile::real(1)}}, {2, 6});
  file.output(file.call("torch.ops.aten.add.Tensor",
                        {{"self", NetFile::tensor(x)}, {"other", NetFile::tensor(first)}}, {0, 6}));
  file.write(path());
  const Program net(path());
  const Program copy(std::dynamic_pointer_cast<ProgramImpl>(net->clone()));
  EXPECT_TRUE(torch::equal(copy.ptr()->forward(x_), x_ + 1));
  EXPECT_TRUE(torch::equal(net.ptr()->forward(x_), x_ + 1)) << "the copy has memory of its own";
  copy.ptr()->to(torch::kDouble);
  EXPECT_EQ(copy->named_buffers()["all"].scalar_type(), torch::kDouble);
}

TEST_F(ProgramTest, KeepsIntegersWhenItsTypeChanges) {
  Program net = classifier();
  net->to(torch::kDouble);
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].scalar_type(), torch::kLong);
  net->forward(x_.to(torch::kDouble));
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int>(), 1);
}

}  // namespace
}  // namespace lockstep
