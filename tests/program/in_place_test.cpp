// Programs that write results over operands, compared with the same programs that do not.
#include <lockstep/program/in_place.h>

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <tests/program/net_file.h>
#include <tests/program/whole_net.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing_support::NetFile;
using testing_support::WholeNet;
using Names = std::vector<std::string>;
using N = NetFile;

constexpr int kDoubleOfFile = 8;  // float64 in the schema of torch.export

// The operators that a thread calls while it lives, without those that they call and without the
// layers between them.
class CalledOperators {
 public:
  CalledOperators() {
    names().clear();
    depth() = 0;
    callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              const std::string name = function.name();
              const bool is_layer = name == "aten::linear" || name == "aten::view";
              if (depth()++ == 0 && !is_layer) names().push_back(name.substr(name.find(':') + 2));
              return nullptr;
            },
            [](const at::RecordFunction&, at::ObserverContext*) { --depth(); })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~CalledOperators() { at::removeCallback(callback_); }
  CalledOperators(const CalledOperators&) = delete;
  CalledOperators& operator=(const CalledOperators&) = delete;

  static Names& names() {
    thread_local Names all;
    return all;
  }

 private:
  static int& depth() {
    thread_local int calls = 0;
    return calls;
  }
  at::CallbackHandle callback_ = 0;
};

// A net of [N, 6], whose layers share a weight.
struct Layers {
  NetFile file{};
  std::string x = file.input("x", {0, 6});
  std::string weight = [this] {
    torch::manual_seed(1);
    return file.parameter("weight", torch::randn({6, 6}).set_requires_grad(true));
  }();

  std::string linear(const std::string& value) {
    return file.call("torch.ops.aten.linear.default",
                     {{"input", N::tensor(value)}, {"weight", N::tensor(weight)}}, {0, 6});
  }
  std::string call(const std::string& name, const std::string& value,
                   const NetFile::Arguments& others = {}) {
    NetFile::Arguments arguments = {{name == "dropout" ? "input" : "self", N::tensor(value)}};
    arguments.insert(arguments.end(), others.begin(), others.end());
    const std::string overload =
        others.empty() || others[0].first != "other" ? "default" : "Tensor";
    return file.call("torch.ops.aten." + name + "." + overload, arguments, {0, 6});
  }
  std::string call(const std::string& name, const std::string& value, const std::string& other) {
    return call(name, value, {{"other", N::tensor(other)}});
  }
  std::string sum(const std::string& value) {
    return file.call(
        "torch.ops.aten.sum.dim_IntList",
        {{"self", N::tensor(value)}, {"dim", {{"as_ints", {1}}}}, {"keepdim", N::truth(true)}},
        {0, 1});
  }
  std::string view(const std::string& value) {
    return file.call("torch.ops.aten.view.default",
                     {{"self", N::tensor(value)}, {"size", {{"as_ints", {-1, 3}}}}}, {0, 3});
  }
  void output(const Names& values) {
    for (const std::string& value : values) file.output(value, value);
  }
};

class InPlaceTest : public testing::Test {
 protected:
  InPlaceTest() { at::set_num_threads(1); }

  Program load(const NetFile& file, bool in_place) {
    file.write(path());
    return Program(path(), ProgramOptions{.in_place = in_place});
  }
  std::filesystem::path path() const { return folder_ / "net.pt2"; }

 private:
  testing_support::TemporaryDirectory folder_;
};

std::vector<torch::Tensor> tensors_in(const ProgramOutput& output) {
  std::vector<torch::Tensor> tensors;
  each_tensor(output, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

struct Trained {
  std::vector<torch::Tensor> tensors{};  // outputs, gradients and weights of all steps
  Names called{};                        // by the last forward
};

Trained train(Program net, bool has_gradients) {
  Trained result;
  torch::manual_seed(2);
  torch::Tensor x = torch::linspace(-1, 1, 30).view({5, 6}).clone().set_requires_grad(true);
  for (int step = 0; step < 2; ++step) {
    const torch::AutoGradMode mode(has_gradients);
    net->zero_grad();
    ProgramOutput output;
    {
      const CalledOperators called;
      output = net->forward(x);
      result.called = CalledOperators::names();
    }
    torch::Tensor loss = torch::zeros({});
    for (const torch::Tensor& tensor : tensors_in(output)) {
      EXPECT_EQ(tensor.requires_grad(), has_gradients);
      result.tensors.push_back(tensor.detach().clone());
      loss = loss + tensor.square().mean();
    }
    if (!has_gradients) continue;
    loss.backward();
    const torch::NoGradGuard no_grad;
    result.tensors.push_back(x.grad().clone());
    for (torch::Tensor& parameter : net->parameters()) {
      if (!parameter.grad().defined()) continue;
      result.tensors.push_back(parameter.grad().clone());
      parameter.add_(parameter.grad(), -0.1);
      result.tensors.push_back(parameter.clone());
    }
  }
  result.tensors.push_back(x.detach());
  return result;
}

void expect_same(const Trained& got, const Trained& wanted, const std::string& what) {
  ASSERT_EQ(got.tensors.size(), wanted.tensors.size()) << what;
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(got.tensors[i], wanted.tensors[i])) << what << ", tensor " << i;
    EXPECT_EQ(got.tensors[i].strides(), wanted.tensors[i].strides()) << what << ", tensor " << i;
  }
}

struct Case {
  const char* name;
  std::function<void(Layers&)> build;
  Names called{};        // with gradients
  Names without_grad{};  // empty: the same
};

std::vector<Case> cases() {
  return {
      {"the last use",
       [](Layers& net) { net.output({net.call("relu", net.linear(net.x))}); },
       {"relu_"}},
      {"an argument of the program",
       [](Layers& net) { net.output({net.call("relu", net.x)}); },
       {"relu"}},
      {"a sum of values of which autograd saves one",
       [](Layers& net) {
         const auto active = net.call("relu", net.linear(net.x));
         net.output({net.call("relu", net.call("add", net.linear(active), active))});
       },
       {"relu_", "add_", "relu_"}},
      {"the second operand of a sum",
       [](Layers& net) {
         const auto active = net.call("relu", net.linear(net.x));
         net.output({net.call("relu", net.call("add", active, net.linear(active)))});
       },
       {"relu_", "add_", "relu_"}},
      {"a saved result",
       [](Layers& net) { net.output({net.call("relu", net.call("sigmoid", net.linear(net.x)))}); },
       {"sigmoid_", "relu"},
       {"sigmoid_", "relu_"}},
      {"saved operands",
       [](Layers& net) {
         const auto product = net.call("mul", net.linear(net.x), net.linear(net.x));
         net.output({net.call("add", product, {{"other", N::real(1)}})});
       },
       {"mul", "add_"},
       {"mul_", "add_"}},
      {"numbers",
       [](Layers& net) {
         const auto half = net.call("div", net.linear(net.x), {{"other", N::real(2)}});
         const auto less = net.call("sub", half, {{"other", N::real(0.25)}});
         net.output({net.call("mul", less, {{"other", N::integer(3)}})});
       },
       {"div_", "sub_", "mul_"}},
      {"a view that is used later",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         const auto view = net.view(value);
         net.output({net.call("tanh", value), view});
       },
       {"tanh"}},
      {"a view whose base is used later",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         net.output({net.call("relu", net.view(value)), net.call("relu", value)});
       },
       {"relu", "relu_"}},
      {"one value as both operands",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         net.output({net.call("add", value, value)});
       },
       {"add"}},
      {"a value that is used twice",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         net.output({net.call("relu", value), net.call("tanh", value)});
       },
       {"relu", "tanh_"}},
      {"an output",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         net.output({net.call("relu", value), value});
       },
       {"relu"}},
      {"a broadcast operand",
       [](Layers& net) {
         const auto value = net.linear(net.x);
         net.output({net.call("add", net.sum(value), value)});
       },
       {"sum", "add_"}},
      {"the operand that has the type of the result",
       [](Layers& net) {
         const auto wide = net.file.call("torch.ops.aten.to.dtype",
                                         {{"self", N::tensor(net.linear(net.x))},
                                          {"dtype", {{"as_scalar_type", kDoubleOfFile}}}},
                                         {0, 6});
         net.output({net.call("add", net.linear(net.x), wide)});
       },
       {"to", "add_"}},
      {"an operand of another type",
       [](Layers& net) {
         const auto wide = net.file.call("torch.ops.aten.to.dtype",
                                         {{"self", N::tensor(net.linear(net.x))},
                                          {"dtype", {{"as_scalar_type", kDoubleOfFile}}}},
                                         {0, 6});
         net.output({net.call("sub", net.linear(net.x), wide)});
       },
       {"to", "sub"}},
      {"a sum with a factor",
       [](Layers& net) {
         const auto factor = std::pair<std::string, NetFile::Json>{"alpha", N::integer(2)};
         const auto active = net.call("relu", net.linear(net.x));
         const auto value = net.linear(active);
         net.output({net.call("add", active, {{"other", N::tensor(value)}, factor}),
                     net.call("add", net.linear(active), {{"other", N::tensor(active)}, factor})});
       },
       {"relu_", "add", "add_"}},
      {"a dropout",
       [](Layers& net) {
         net.output({net.call("dropout", net.linear(net.x),
                              {{"p", N::real(0.5)}, {"train", N::truth(true)}})});
       },
       {"dropout_"}},
      {"a derivative that needs the operand",
       [](Layers& net) { net.output({net.call("hardtanh", net.linear(net.x))}); },
       {"hardtanh"},
       {"hardtanh_"}},
      {"a slope",
       [](Layers& net) {
         net.output(
             {net.call("leaky_relu", net.linear(net.x), {{"negative_slope", N::real(0.1)}})});
       },
       {"leaky_relu_"}},
      {"a negative slope",
       [](Layers& net) {
         net.output(
             {net.call("leaky_relu", net.linear(net.x), {{"negative_slope", N::real(-0.1)}})});
       },
       {"leaky_relu"}},
  };
}

TEST_F(InPlaceTest, GivesTheSameBits) {
  for (const Case& each : cases()) {
    for (const bool has_gradients : {true, false}) {
      for (const bool training : {true, false}) {
        Layers net;
        each.build(net);
        Program on = load(net.file, true), off = load(net.file, false);
        on->train(training);
        off->train(training);
        const Trained got = train(on, has_gradients), wanted = train(off, has_gradients);
        expect_same(got, wanted, each.name);
        const bool differs = !has_gradients && !each.without_grad.empty();
        EXPECT_EQ(got.called, differs ? each.without_grad : each.called) << each.name;
        for (const std::string& name : wanted.called) {
          EXPECT_FALSE(name.ends_with('_')) << each.name << ": " << name;
        }
      }
    }
  }
}

TEST_F(InPlaceTest, ComputesStagesLikeTheWhole) {
  Layers net;
  const auto first = net.call("relu", net.linear(net.x));
  const auto second = net.call("add", net.linear(first), first);
  const auto third = net.call("relu", second);
  net.output({net.call("add", net.linear(third), third)});
  const torch::Tensor x = torch::linspace(-1, 1, 30).view({5, 6});
  const Program whole = load(net.file, false);
  const torch::Tensor expected = whole.ptr()->forward(x).first_tensor();
  const Program on = load(net.file, true);
  for (const int count : {1, 2, 3, 4}) {
    std::vector<torch::Tensor> values = {x};
    for (Program stage : split(on, count, {.by_time = false})) {
      const std::vector<torch::Tensor> before = values;
      std::vector<torch::Tensor> copies;
      for (const torch::Tensor& value : before) copies.push_back(value.clone());
      values = tensors_in(stage->forward(before));
      for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(torch::equal(before[i], copies[i])) << "a stage changed its argument";
      }
    }
    ASSERT_EQ(values.size(), 1U);
    EXPECT_TRUE(torch::equal(values[0], expected)) << count;
  }
}

// The copy reads its program from the file again, with the default options.
TEST_F(InPlaceTest, IsOffInCopiesOfANetThatHoldsTheProgram) {
  Layers net;
  net.output({net.call("relu", net.linear(net.x))});
  const Program off = load(net.file, false);
  const auto whole = std::make_shared<WholeNet>(path());
  whole->program = whole->replace_module("program", off);
  const auto copy = std::dynamic_pointer_cast<WholeNet>(whole->clone());
  EXPECT_THAT(train(copy->program, /*has_gradients=*/true).called, ElementsAre("relu"));
}

// contiguous() returns its argument itself, here the tensor of the caller.
TEST_F(InPlaceTest, KeepsTheMemoryOfTheCaller) {
  Layers net;
  net.output({net.call("relu", net.call("contiguous", net.x))});
  Program program = load(net.file, true);
  std::vector<float> memory(30, -1.0F);
  const auto run = [&](torch::Tensor x) {
    std::vector<c10::IValue> inputs;
    inputs.emplace_back(std::move(x));
    ProgramOutput output;
    Names called;
    {
      const CalledOperators operators;
      output = program->run(std::move(inputs));
      called = CalledOperators::names();
    }
    EXPECT_TRUE(torch::equal(output.first_tensor(), torch::zeros({5, 6})));
    return called;
  };
  EXPECT_THAT(run(torch::from_blob(memory.data(), {5, 6})), ElementsAre("contiguous", "relu"));
  EXPECT_EQ(memory, std::vector<float>(30, -1.0F));
  const torch::Tensor held = -torch::ones({5, 6});
  EXPECT_THAT(run(held), ElementsAre("contiguous", "relu"));
  EXPECT_TRUE(torch::equal(held, -torch::ones({5, 6})));
  EXPECT_THAT(run(-torch::ones({5, 6})), ElementsAre("contiguous", "relu_"))
      << "nobody holds this one";
}

}  // namespace
}  // namespace lockstep
