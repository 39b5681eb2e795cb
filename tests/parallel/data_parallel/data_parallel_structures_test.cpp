// Arguments and outputs of any structure, scattered and joined.
#include <lockstep/parallel/data_parallel.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/ordered_dict.h>

#include <lockstep/core/error.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/support/messages.h>

namespace lockstep::detail::data_parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::cpus;
using testing_support::message_of;
using testing_support::ProbedNet;
using torch::Tensor;

Tensor rows(std::int64_t count) { return torch::arange(count, torch::kFloat32).unsqueeze(1); }

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    numbers.push_back(tensor.flatten()[i].item<double>());
  }
  return numbers;
}

// A module without parameters whose forward is given as a function.
template <class Result, class... Arguments>
struct FunctionNet : torch::nn::Cloneable<FunctionNet<Result, Arguments...>> {
  explicit FunctionNet(std::function<Result(Arguments...)> given) : function(std::move(given)) {}
  void reset() override {}
  Result forward(Arguments... arguments) { return function(arguments...); }
  std::function<Result(Arguments...)> function;
};

template <class Result, class... Arguments>
std::shared_ptr<FunctionNet<Result, Arguments...>> function_net(
    std::function<Result(Arguments...)> function) {
  return std::make_shared<FunctionNet<Result, Arguments...>>(std::move(function));
}

struct Words {
  Tensor tokens;
  std::vector<Tensor> lengths;
  std::string language;
};

TEST(DataParallelArguments, AreScatteredAlongTheFirstDimension) {
  std::array<std::string, 2> seen;
  const auto net = function_net(std::function<Tensor(const Words&, double, const Tensor&,
                                                     const std::map<std::string, Tensor>&)>(
      [&](const Words& words, double factor, const Tensor& scale,
          const std::map<std::string, Tensor>& more) {
        const auto which = static_cast<std::size_t>(words.tokens[0].item<double>() / 3);
        seen.at(which) =
            lockstep::str(words.tokens.sizes(), words.lengths.at(1).sizes(), words.language, factor,
                          scale.item<double>(), more.at("k").sizes());
        return words.tokens * factor;
      }));
  DataParallel dp(net, cpus(2));
  const Words words{rows(5), {rows(5), torch::ones({5, 2, 2})}, "en"};
  const std::map<std::string, Tensor> more{{"k", torch::zeros({5})}};
  const Tensor output = dp.forward(words, 2.0, torch::scalar_tensor(7), more);
  EXPECT_THAT(numbers_of(output), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(seen, ElementsAre("[3, 1][3, 2, 2]en27[3]", "[2, 1][2, 2, 2]en27[2]"));
}

TEST(DataParallelArguments, DictionariesAndUndefinedTensors) {
  using Dict = torch::OrderedDict<std::string, Tensor>;
  const auto net =
      function_net(std::function<Tensor(const Dict&, const std::optional<Tensor>&, const Tensor&)>(
          [](const Dict& dict, const std::optional<Tensor>& maybe, const Tensor& nothing) {
            return dict["a"] + dict["b"] + (maybe ? *maybe : Tensor(torch::zeros({1}))) +
                   (nothing.defined() ? 100 : 0);
          }));
  DataParallel dp(net, cpus(2));
  Dict dict;
  dict.insert("a", rows(4));
  dict.insert("b", rows(4) * 10);
  EXPECT_THAT(numbers_of(dp.forward(dict, std::optional<Tensor>(), Tensor())),
              ElementsAre(0, 11, 22, 33));
  EXPECT_THAT(numbers_of(dp.forward(dict, std::optional<Tensor>(rows(4)), Tensor())),
              ElementsAre(0, 12, 24, 36));
}

TEST(DataParallelArguments, WeightsDecideWhoGetsHowMuch) {
  const auto net = function_net(std::function<Tensor(const Tensor&)>(
      [](const Tensor& x) { return torch::full({x.size(0)}, x.size(0)); }));
  DataParallel dp(net, cpus(3), {.weights = {3, 1, 2}});
  EXPECT_THAT(numbers_of(dp.forward(rows(6))), ElementsAre(3, 3, 3, 1, 2, 2));
  EXPECT_THAT(numbers_of(dp.forward(rows(1))), ElementsAre(1)) << "two replicas rest";
}

struct Prediction {
  Tensor logits;
  std::vector<Tensor> layers;
  std::map<std::string, std::pair<Tensor, Tensor>> named;
  std::unordered_map<int, Tensor> numbered;
  std::tuple<Tensor, std::array<Tensor, 2>> both;
  std::optional<Tensor> maybe;
  Tensor loss;
  std::int64_t samples = 0;
};

Prediction predict(const Tensor& x, bool ascending) {
  Prediction p;
  p.logits = x * 2;
  p.layers = {x + 1, x.to(torch::kInt64)};
  p.named["pair"] = {x, x.flatten()};
  for (int i = 0; i < 20; ++i) {
    const int key = ascending ? i : 19 - i;
    p.numbered[key] = x + key;
  }
  std::get<0>(p.both) = x + 3;
  std::get<1>(p.both) = {x + 4, x + 5};
  p.maybe = x + 6;
  p.loss = x.sum();
  p.samples = x.size(0);
  return p;
}

TEST(DataParallelOutputs, AreJoinedWhateverTheirStructure) {
  // The replicas insert into their hash maps in opposite orders.
  const auto net = function_net(std::function<Prediction(const Tensor&)>(
      [](const Tensor& x) { return predict(x, x[0].item<double>() == 0); }));
  DataParallel dp(net, cpus(2));
  const Tensor x = rows(5);
  const Prediction got = dp.forward(x), whole = predict(x, true);
  EXPECT_TRUE(got.logits.equal(whole.logits));
  EXPECT_TRUE(got.layers.at(0).equal(whole.layers.at(0)));
  EXPECT_TRUE(got.layers.at(1).equal(whole.layers.at(1)));
  EXPECT_EQ(got.layers.at(1).scalar_type(), torch::kInt64);
  EXPECT_TRUE(got.named.at("pair").first.equal(x));
  EXPECT_TRUE(got.named.at("pair").second.equal(x.flatten()));
  for (int key = 0; key < 20; ++key) {
    EXPECT_TRUE(got.numbered.at(key).equal(whole.numbered.at(key))) << key;
  }
  EXPECT_TRUE(std::get<0>(got.both).equal(x + 3));
  EXPECT_TRUE(std::get<1>(got.both)[1].equal(x + 5));
  EXPECT_TRUE(got.maybe.value().equal(x + 6));
  EXPECT_THAT(numbers_of(got.loss), ElementsAre(3, 7)) << "a number of each replica";
  EXPECT_EQ(got.samples, 3) << "of the first replica";
}

TEST(DataParallelOutputs, NestedOnesHaveGradients) {
  struct Two {
    Tensor wide;
    std::map<std::string, Tensor> numbers;
  };
  const auto net = function_net(std::function<Two(const Tensor&)>(
      [](const Tensor& x) { return Two{x * x, {{"sum", x.sum()}, {"count", torch::ones({})}}}; }));
  DataParallel dp(net, cpus(2));
  const Tensor x = rows(4).requires_grad_();
  const Two got = dp.forward(x);
  EXPECT_FALSE(got.numbers.at("count").requires_grad());
  (got.wide.sum() + got.numbers.at("sum")[1] * 10).backward();
  EXPECT_THAT(numbers_of(x.grad()), ElementsAre(0, 2, 14, 16));
}

TEST(DataParallelOutputs, OfASingleReplicaAreTheReplicas) {
  const auto net = function_net(std::function<std::pair<Tensor, Tensor>(const Tensor&)>(
      [](const Tensor& x) { return std::pair(x * 3, x.sum()); }));
  DataParallel dp(net, cpus(3));
  const Tensor x = torch::full({1, 2}, 2.0).requires_grad_();
  auto [wide, number] = dp.forward(x);
  EXPECT_EQ(number.dim(), 1);
  // Outputs may be modified in place.
  (wide.add_(1).square().sum() + number.mul_(5).sum()).backward();
  EXPECT_THAT(numbers_of(x.grad()), ElementsAre(2 * 7 * 3 + 5, 2 * 7 * 3 + 5));
}

template <class Function>
std::string joining_error(Function function) {
  const auto net = function_net(std::function(function));
  DataParallel dp(net, cpus(2));
  return message_of<ConfigError>([&] { dp.forward(rows(4)); });
}

TEST(DataParallelOutputs, ThatDoNotFitAreRefused) {
  const auto first = [](const Tensor& x) { return x[0].item<double>() == 0; };
  EXPECT_EQ(
      joining_error([&](const Tensor& x) -> Tensor { return first(x) ? x : x.expand({2, 5}); }),
      "DataParallel: tensor 0 of the output is Float [2, 1] on one replica and Float [2, 5] on "
      "another; expected the same dtype and sizes, but for the first dimension");
  EXPECT_THAT(joining_error(
                  [&](const Tensor& x) -> Tensor { return first(x) ? x : x.to(torch::kFloat64); }),
              HasSubstr("Double [2, 1] on another"));
  EXPECT_THAT(joining_error([&](const Tensor& x) -> Tensor { return first(x) ? x : Tensor(); }),
              HasSubstr("undefined on another"));
  EXPECT_EQ(joining_error([&](const Tensor& x) -> std::vector<Tensor> {
              if (first(x)) return {x, x};
              return {x};
            }),
            "DataParallel: the output has 2 tensors on one replica and 1 on another; expected the "
            "same structure");
  EXPECT_EQ(joining_error([&](const Tensor& x) -> std::map<std::string, Tensor> {
              return {{"a", x}, {first(x) ? "b" : "c", x}};
            }),
            "DataParallel: the output has the keys [a, b] on one replica and [a, c] on another; "
            "expected the same structure");
}

enum class Head { kScores, kValues };
struct OrderedKey {
  int number;
  bool operator<(const OrderedKey& other) const { return number < other.number; }
};
struct HashedKey {
  int number;
  bool operator==(const HashedKey&) const = default;
};
struct HashOfKey {
  std::size_t operator()(const HashedKey& key) const {
    return static_cast<std::size_t>(key.number);
  }
};

// Two replicas return maps of one item, with the keys `a` and `b`.
template <class Map>
void expect_keys_are_compared(typename Map::key_type a, typename Map::key_type b) {
  using Key = typename Map::key_type;
  const auto joined = [&](Key of_second) {
    const auto net = function_net(std::function<Map(const Tensor&)>([&](const Tensor& x) {
      Map map;
      map.emplace(x[0].item<double>() == 0 ? a : of_second, x);
      return map;
    }));
    DataParallel dp(net, cpus(2));
    return dp.forward(rows(4));
  };
  EXPECT_THAT(message_of<ConfigError>([&] { joined(b); }),
              HasSubstr("on another; expected the same structure"));
  EXPECT_TRUE(joined(a).begin()->second.equal(rows(4)));
}

// Also those that cannot be printed, and those that look equal when they are.
TEST(DataParallelOutputs, MustHaveTheSameKeysOfAnyType) {
  expect_keys_are_compared<std::map<Head, Tensor>>(Head::kScores, Head::kValues);
  expect_keys_are_compared<std::map<OrderedKey, Tensor>>({1}, {2});
  expect_keys_are_compared<std::unordered_map<HashedKey, Tensor, HashOfKey>>({1}, {2});
  expect_keys_are_compared<std::map<double, Tensor>>(0.1, 0.1 + 1e-12);
}

TEST(DataParallelOutputs, WhoseKeysDifferAreNamedByThem) {
  const auto is_first = [](const Tensor& x) { return x[0].item<double>() == 0; };
  EXPECT_THAT(joining_error([&](const Tensor& x) -> std::map<Head, Tensor> {
                return {{is_first(x) ? Head::kScores : Head::kValues, x}};
              }),
              HasSubstr("has the keys [0] on one replica and [1] on another"));
  EXPECT_THAT(joining_error([&](const Tensor& x) -> std::map<OrderedKey, Tensor> {
                return {{OrderedKey{is_first(x) ? 1 : 2}, x}};
              }),
              HasSubstr("has the keys [a key that cannot be printed] on one replica"));
}

TEST(DataParallelArguments, ThatCannotBeSharedOutAreRefused) {
  const auto net = function_net(std::function<Tensor(const Tensor&, const Tensor&)>(
      [](const Tensor& a, const Tensor& b) { return a + b; }));
  DataParallel dp(net, cpus(2));
  EXPECT_EQ(message_of<ConfigError>([&] { dp.forward(rows(4), rows(3)); }),
            "DataParallel: the tensors of a batch must agree in their first dimension, got [4, 1] "
            "and [3, 1]");
  EXPECT_EQ(message_of<ConfigError>([&] { dp.forward(rows(0), rows(0)); }),
            "DataParallel: the batch is empty, got a tensor of shape [0, 1]");
  EXPECT_EQ(message_of<ConfigError>([&] { dp.forward(torch::ones({}), torch::ones({})); }),
            "DataParallel: there is nothing to share out; expected at least one tensor whose first "
            "dimension counts the samples");
  EXPECT_THAT(numbers_of(dp.forward(rows(2), rows(2))), ElementsAre(0, 2)) << "it goes on";
}

TEST(DataParallelLoss, NeedsASingleNumber) {
  ProbedNet net([](const Tensor& x) { return x; });
  DataParallel dp(net, cpus(2));
  const auto criterion = [](const Tensor& output, const Tensor& target) {
    return (output - target).square();
  };
  EXPECT_EQ(message_of<ConfigError>(
                [&] { dp.loss(criterion, torch::ones({4, 4}), torch::ones({4, 3})); }),
            "DataParallel: the criterion must return one number for its samples, a tensor without "
            "dimensions, got Float [2, 3]; let it take their mean");
}

TEST(DataParallelLoss, MustBeDefined) {
  ProbedNet net([](const Tensor& x) { return x; });
  DataParallel dp(net, cpus(2));
  const auto nothing = [](const Tensor&, const Tensor&) { return Tensor(); };
  EXPECT_THAT(
      message_of<ConfigError>([&] { dp.loss(nothing, torch::ones({4, 4}), torch::ones({4, 3})); }),
      HasSubstr("without dimensions, got undefined; let it take their mean"));
}

TEST(DataParallelLoss, TakesSeveralInputsAndAnyTarget) {
  const auto net = function_net(std::function<Tensor(const Tensor&, const Tensor&)>(
      [](const Tensor& a, const Tensor& b) { return a + b; }));
  DataParallel dp(net, cpus(2), {.weights = {2, 1}});
  const std::pair<Tensor, std::string> target(rows(3), "a name");
  const auto criterion = [](const Tensor& output, const std::pair<Tensor, std::string>& wanted) {
    return (output - wanted.first).mean();
  };
  EXPECT_NEAR(dp.loss(criterion, rows(3), rows(3), target).item<double>(), 1.0, 1e-6);
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
