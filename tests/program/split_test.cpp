// Stages of programs.
#include <lockstep/program/split.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <tests/program/net_file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::NetFile;

std::vector<torch::Tensor> tensors_of(const ProgramOutput& output) {
  if (output.is_tensor()) return {output.tensor()};
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < output.size(); ++i) tensors.push_back(output[i].tensor());
  return tensors;
}

class SplitTest : public testing::Test {
 protected:
  SplitTest() { at::set_num_threads(1); }
  Program load(const NetFile& file) {
    file.write(folder_ / "net.pt2");
    return Program(folder_ / "net.pt2");
  }
  const torch::Tensor x_ = torch::linspace(-1, 1, 30).view({5, 6});

 private:
  testing_support::TemporaryDirectory folder_;
};

TEST_F(SplitTest, ComputesWhatTheWholeProgramComputes) {
  const Program net = load(testing_support::small_classifier());
  const Program whole(std::dynamic_pointer_cast<ProgramImpl>(net->clone()));
  torch::manual_seed(2);
  const auto expected = tensors_of(whole.ptr()->forward(x_));
  expected[0].square().mean().backward();
  for (const bool by_time : {false, true}) {
    for (const int count : {1, 2, 3}) {
      net.ptr()->zero_grad();
      const auto before = at::detail::getDefaultCPUGenerator().get_state();
      const std::vector<Program> stages = split(net, count, {.by_time = by_time});
      EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
      ASSERT_EQ(stages.size(), static_cast<std::size_t>(count));
      torch::manual_seed(2);
      std::vector<torch::Tensor> values = {x_};
      for (Program stage : stages) values = tensors_of(stage->forward(values));
      ASSERT_EQ(values.size(), 2U);
      EXPECT_TRUE(torch::equal(values[0], expected[0])) << count;
      EXPECT_TRUE(torch::equal(values[1], expected[1])) << count;
      values[0].square().mean().backward();
      for (const auto& item : whole->named_parameters()) {
        EXPECT_TRUE(torch::equal(net->named_parameters()[item.key()].grad(), item.value().grad()))
            << item.key();
      }
    }
  }
}

TEST_F(SplitTest, SharesTheParametersUnderTheirNames) {
  const Program net = load(testing_support::small_classifier());
  net->named_modules()["norm"]->eval();
  std::set<std::string> names;
  for (const Program& stage : split(net, 2, {.by_time = false})) {
    for (const auto& item : stage->named_parameters()) {
      names.insert(item.key());
      EXPECT_TRUE(item.value().is_same(net->named_parameters()[item.key()])) << item.key();
    }
    for (const auto& item : stage->named_modules("", /*include_self=*/false)) {
      EXPECT_EQ(item.value()->is_training(), item.key() != "norm") << item.key();
    }
  }
  EXPECT_EQ(names.size(), net->named_parameters().size());
}

TEST_F(SplitTest, NamesTheClassesOfTheModules) {
  const Program net = load(testing_support::small_classifier());
  const auto wanted = net->named_modules();
  EXPECT_EQ(wanted["norm"]->name(), "BatchNorm1d");
  std::set<std::string> seen;
  for (const Program& stage : split(net, 3, {.by_time = false})) {
    for (const auto& item : stage->named_modules("", /*include_self=*/false)) {
      EXPECT_EQ(item.value()->name(), wanted[item.key()]->name()) << item.key();
      seen.insert(item.key());
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"drop", "first", "last", "norm"}));
}

// A leaf of the second stage could not be changed in place.
TEST_F(SplitTest, KeepsATensorWithItsChange) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  const auto sum = file.call("torch.ops.aten.add.Tensor",
                             {{"self", NetFile::tensor(x)}, {"other", NetFile::real(1)}}, {0, 6});
  const auto view =
      file.call("torch.ops.aten.view.default",
                {{"self", NetFile::tensor(sum)}, {"size", {{"as_ints", {-1, 3}}}}}, {0, 3});
  file.call("torch.ops.aten.relu_.default", {{"self", NetFile::tensor(view)}}, {0, 3});
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(sum)}}, {0, 6}));
  const Program net = load(file);
  const auto stages = split(net, 2, {.by_time = false});
  torch::Tensor y = stages[0].ptr()->forward(x_).first_tensor();
  EXPECT_TRUE(torch::equal(y, (x_ + 1).relu()));
  EXPECT_TRUE(torch::equal(stages[1].ptr()->forward(y), -(x_ + 1).relu()));
  const std::string message =
      testing_support::message_of<ConfigError>([&] { split(net, 3, {.by_time = false}); });
  EXPECT_TRUE(message.ends_with("net.pt2 can be cut at 1 place, which is too few for 3 stages"))
      << message;
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { split(net, 0); }),
            "split: stages must be at least 1, got 0");
}

// Stages must evaluate like the whole: a part of the call would be skipped otherwise.
TEST_F(SplitTest, KeepsACallThatEvaluationSkips) {
  NetFile file;
  const auto x = file.input("x", {0, 6});
  const std::string type = "timm.layers.drop.DropPath";
  const auto sum = file.call("torch.ops.aten.add.Tensor",
                             {{"self", NetFile::tensor(x)}, {"other", NetFile::real(1)}}, {0, 6});
  const auto mask =
      file.call("torch.ops.aten.bernoulli.p",
                {{"self", NetFile::tensor(sum)}, {"p", NetFile::real(0)}}, {0, 6}, "path", type);
  const auto less = file.call("torch.ops.aten.mul.Tensor",
                              {{"self", NetFile::tensor(sum)}, {"other", NetFile::tensor(mask)}},
                              {0, 6}, "path", type);
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(less)}}, {0, 6}));
  const Program net = load(file);
  net.ptr()->eval();
  EXPECT_FALSE(testing_support::message_of<ConfigError>([&] { split(net, 4); }).empty());
  std::vector<torch::Tensor> values = {x_};
  for (Program stage : split(net, 3)) values = tensors_of(stage->forward(values));
  EXPECT_TRUE(torch::equal(values[0], -(x_ + 1)));
}

// The beginning of a net that reads a buffer: 2 (x + state).
struct BufferNet {
  NetFile file{};
  std::string state = file.buffer("state", torch::zeros({6}));
  std::string x = file.input("x", {0, 6});
  std::string sum =
      file.call("torch.ops.aten.add.Tensor",
                {{"self", NetFile::tensor(x)}, {"other", NetFile::tensor(state)}}, {0, 6});
  std::string twice =
      file.call("torch.ops.aten.add.Tensor",
                {{"self", NetFile::tensor(sum)}, {"other", NetFile::tensor(sum)}}, {0, 6});
};

// With several micro-batches, one stage would read what another has not written yet.
TEST_F(SplitTest, KeepsABufferInOneStage) {
  auto [file, state, x, sum, twice] = BufferNet();
  file.call("torch.ops.aten.add_.Tensor",
            {{"self", NetFile::tensor(state)}, {"other", NetFile::real(1)}}, {6});
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(twice)}}, {0, 6}));
  const Program net = load(file);
  const auto stages = split(net, 2);
  EXPECT_EQ(stages[0]->named_buffers().size(), 1U);
  EXPECT_EQ(stages[1]->named_buffers().size(), 0U);
  EXPECT_TRUE(
      torch::equal(stages[1].ptr()->forward(stages[0].ptr()->forward(x_).first_tensor()), -2 * x_));
  EXPECT_TRUE(torch::equal(net->named_buffers()["state"], torch::ones({6})));
}

// As in-place changes, writes to a buffer belong to one stage.
TEST_F(SplitTest, KeepsABufferThatIsWrittenInOneStage) {
  auto [file, state, x, sum, twice] = BufferNet();
  const auto next = file.call("torch.ops.aten.mean.dim",
                              {{"self", NetFile::tensor(twice)}, {"dim", {{"as_ints", {0}}}}}, {6});
  file.write_to_buffer(next, "state");
  file.output(file.call("torch.ops.aten.neg.default", {{"self", NetFile::tensor(twice)}}, {0, 6}));
  const auto stages = split(load(file), 2);
  EXPECT_EQ(stages[0]->named_buffers().size(), 1U);
  EXPECT_EQ(stages[1]->named_buffers().size(), 0U);
}

// A net of calls that compute, change in place, or may return their input.
NetFile random_net(PhiloxStream& random) {
  NetFile file;
  std::vector<std::string> tensors = {file.input("x", {0, 6})};
  const auto any = [&] {
    return NetFile::tensor(tensors[random.below(static_cast<std::uint32_t>(tensors.size()))]);
  };
  const auto add = [&](const std::string& name, const NetFile::Arguments& arguments) {
    tensors.push_back(file.call("torch.ops.aten." + name, arguments, {0, 6}));
  };
  add("add.Tensor", {{"self", NetFile::tensor("x")}, {"other", NetFile::real(0.5)}});
  const std::uint32_t count = 3 + random.below(12);
  for (std::uint32_t i = 0; i < count; ++i) {
    switch (random.below(9)) {
      case 0:
        add("relu_.default", {{"self", any()}});
        break;
      case 1:
        add("add_.Tensor", {{"self", any()}, {"other", NetFile::real(-0.25)}});
        break;
      case 2:
        add("type_as.default", {{"self", any()}, {"other", any()}});
        break;
      case 3:
        add("dropout.default",
            {{"input", any()}, {"p", NetFile::real(0.5)}, {"train", NetFile::truth(false)}});
        break;
      case 4:
        add("atleast_1d.default", {{"self", any()}});
        break;
      case 5:
        add("view.default", {{"self", any()}, {"size", {{"as_ints", {-1, 6}}}}});
        break;
      case 6:
        add("neg.default", {{"self", any()}});
        break;
      default:
        add("add.Tensor", {{"self", any()}, {"other", any()}});
    }
  }
  file.output(tensors.back(), "last");
  file.output(tensors[random.below(static_cast<std::uint32_t>(tensors.size()))], "other");
  return file;
}

// Tensors reach the next stage as copies, as they do between devices and ranks.
TEST_F(SplitTest, ComputesWhatRandomNetsCompute) {
  const torch::NoGradGuard no_grad;
  int splits = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    PhiloxStream random(3, 0, i);
    const Program net = load(random_net(random));
    const auto expected = tensors_of(net.ptr()->forward(x_.clone()));
    for (const int count : {2, 3, 4}) {
      std::vector<Program> stages;
      try {
        stages = split(net, count);
      } catch (const ConfigError&) {
        break;  // there are fewer places
      }
      ++splits;
      std::vector<torch::Tensor> values = {x_.clone()};
      for (Program stage : stages) {
        values = tensors_of(stage->forward(values));
        for (torch::Tensor& value : values) value = value.clone();
      }
      ASSERT_EQ(values.size(), 2U);
      EXPECT_TRUE(torch::equal(values[0], expected[0])) << i << ", " << count << " stages";
      EXPECT_TRUE(torch::equal(values[1], expected[1])) << i << ", " << count << " stages";
    }
  }
  EXPECT_GT(splits, 20);
}

}  // namespace
}  // namespace lockstep
