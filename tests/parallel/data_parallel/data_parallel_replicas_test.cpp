// Replicas follow the module: values, modes, buffers, threads.
#include <lockstep/parallel/data_parallel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/data_parallel/module_parts.h>
#include <tests/parallel/autocast_here.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/parallel/weight_on_meta.h>
#include <tests/support/messages.h>

namespace lockstep::detail::data_parallel {
namespace {

using testing_support::AutocastHere;
using testing_support::copy_state;
using testing_support::cpus;
using testing_support::difference;
using testing_support::message_of;
using testing_support::normal;
using testing_support::ProbedNet;
using testing_support::SmallNet;
using testing_support::squared_error;
using testing_support::ThreadsScope;
using torch::Tensor;

// Expects that the replicas compute the same output as the bare net.
void expect_follows(DataParallel<SmallNet>& dp, const Tensor& x, const char* when) {
  const torch::NoGradGuard no_grad;
  EXPECT_LE(difference(dp.forward(x), dp.module()->forward(x)), 1e-5) << when;
}

TEST(DataParallelReplicas, FollowTheModulesParameters) {
  SmallNet net, other;
  DataParallel dp(net, cpus(3));
  const Tensor x = normal({7, 4}, 1);
  expect_follows(dp, x, "at first");
  {
    const torch::NoGradGuard no_grad;
    net->first->weight.mul_(3);
  }
  expect_follows(dp, x, "changed in place");
  net->first->weight.data().add_(1);
  expect_follows(dp, x, "changed behind autograd's back");
  copy_state(*net, *other);
  expect_follows(dp, x, "loaded");
  net->last->weight.set_data(torch::randn({3, 8}));
  expect_follows(dp, x, "other memory");
  net->first->weight.set_data(torch::randn({8, 4}).t().contiguous().t());
  expect_follows(dp, x, "other strides");
  net->to(torch::kFloat64);
  expect_follows(dp, x.to(torch::kFloat64), "another dtype");
}

// Buffers, gradients and the optimizer follow, too. The oracle runs on each replica's part.
TEST(DataParallelReplicas, FollowAModuleWithBuffersToAnotherDtype) {
  const ThreadsScope one(1);
  SmallNet net(/*with_norm=*/true), oracle(/*with_norm=*/true);
  copy_state(*oracle, *net);
  DataParallel dp(net, cpus(2));
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kFloat32}) {
    net->to(dtype);
    oracle->to(dtype);
    const Tensor x = normal({6, 4}, 1).to(dtype), y = normal({6, 3}, 2).to(dtype);
    for (SmallNet& each : {std::ref(net), std::ref(oracle)}) each->zero_grad();
    const Tensor loss = dp.loss(squared_error, x, y);
    loss.backward();
    const auto first = squared_error(oracle->forward(x.narrow(0, 0, 3)), y.narrow(0, 0, 3));
    // Only the first replica's part changes the running statistics.
    const Tensor mean = oracle->norm->running_mean.clone(), var = oracle->norm->running_var.clone();
    const auto second = squared_error(oracle->forward(x.narrow(0, 3, 3)), y.narrow(0, 3, 3));
    const Tensor expected = (first + second) / 2;
    expected.backward();
    EXPECT_EQ(loss.scalar_type(), dtype);
    EXPECT_LE(difference(loss, expected), 1e-5);
    EXPECT_EQ(net->norm->running_mean.scalar_type(), dtype);
    EXPECT_LE(difference(net->norm->running_mean, mean), 1e-5);
    EXPECT_LE(difference(net->norm->running_var, var), 1e-5);
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const Tensor gradient = net->parameters()[i].grad();
      ASSERT_EQ(gradient.scalar_type(), dtype) << i;
      EXPECT_LE(difference(gradient, oracle->parameters()[i].grad()), 1e-5) << i;
    }
    copy_state(*oracle, *net);
  }
}

TEST(DataParallelReplicas, ShareTheModulesMemory) {
  struct SharingImpl : torch::nn::Cloneable<SharingImpl> {
    explicit SharingImpl(std::function<void(const Tensor&)> given) : probe(std::move(given)) {
      SharingImpl::reset();
    }
    void reset() override { weight = register_parameter("weight", torch::ones({4})); }
    Tensor forward(const Tensor& x) {
      probe(weight);
      return x * weight;
    }
    std::function<void(const Tensor&)> probe;
    Tensor weight;
  };
  std::atomic<int> shared = 0;
  const void* memory = nullptr;
  const auto net = std::make_shared<SharingImpl>([&](const Tensor& weight) {
    if (weight.data_ptr() == memory) ++shared;
  });
  memory = net->weight.data_ptr();
  DataParallel dp(net, cpus(3));
  dp.forward(torch::ones({6, 4}));
  EXPECT_EQ(shared.load(), 3);
}

TEST(DataParallelReplicas, AreMadeAgainForAModuleWithOtherParts) {
  torch::nn::Sequential net(torch::nn::Linear(4, 5));
  DataParallel dp(net, {"cpu", "cpu"});
  const Tensor x = normal({6, 4}, 2);
  EXPECT_EQ(dp.forward(x).size(1), 5);
  net->push_back(torch::nn::Linear(5, 2));
  const Tensor output = dp.forward(x);
  EXPECT_EQ(output.size(1), 2);
  EXPECT_LE(difference(output, net->forward(x)), 1e-5);
  output.sum().backward();
  EXPECT_EQ(net->parameters().size(), 4U);
  for (const Tensor& parameter : net->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(DataParallelReplicas, FollowTrainingAndEvaluation) {
  torch::nn::Sequential net(torch::nn::Linear(4, 50), torch::nn::Dropout(0.5));
  DataParallel dp(net, {"cpu", "cpu"});
  const Tensor x = normal({6, 4}, 3);
  const auto zeros = [&] { return (dp.forward(x) == 0).sum().item<std::int64_t>(); };
  EXPECT_GT(zeros(), 0);
  net->eval();
  EXPECT_EQ(zeros(), 0);
  net->train();
  EXPECT_GT(zeros(), 0);
  net[1]->eval();
  EXPECT_EQ(zeros(), 0) << "a module inside";
}

TEST(DataParallelReplicas, FollowWhichParametersAreFrozen) {
  SmallNet net;
  DataParallel dp(net, cpus(2));
  const Tensor x = normal({6, 4}, 4);
  net->first->weight.requires_grad_(false);
  dp.forward(x).sum().backward();
  EXPECT_FALSE(net->first->weight.grad().defined());
  EXPECT_TRUE(net->first->bias.grad().defined());
  net->first->weight.requires_grad_(true);
  dp.forward(x).sum().backward();
  EXPECT_TRUE(net->first->weight.grad().defined());
  for (Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(dp.forward(x).requires_grad());
}

TEST(DataParallelReplicas, RunningStatisticsAreThoseOfTheFirst) {
  SmallNet net(true), oracle(true);
  copy_state(*oracle, *net);
  DataParallel dp(net, cpus(3));
  const Tensor x = normal({9, 4}, 5);
  for (int step = 0; step < 3; ++step) {
    dp.forward(x);
    oracle->forward(x.narrow(0, 0, 3));
  }
  EXPECT_LE(difference(net->norm->running_mean, oracle->norm->running_mean), 1e-6);
  EXPECT_LE(difference(net->norm->running_var, oracle->norm->running_var), 1e-6);
  EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), 3);
  net->eval();
  expect_follows(dp, x, "all replicas have the module's statistics");
  {
    const torch::NoGradGuard no_grad;
    net->norm->running_mean.fill_(0.5);
  }
  expect_follows(dp, x, "also new ones");
  net->norm->running_var.set_data(torch::full({8}, 2.0));
  expect_follows(dp, x, "also in other memory");
}

// Buffers of several types and layouts. Its output has all their values, in a row for each sample.
struct ManyBuffersImpl : torch::nn::Cloneable<ManyBuffersImpl> {
  ManyBuffersImpl() { ManyBuffersImpl::reset(); }
  void reset() override {
    const Tensor numbers = torch::arange(8, torch::kFloat32);
    transposed = register_buffer("transposed", numbers.narrow(0, 0, 6).view({2, 3}).t());
    gaps = register_buffer("gaps", numbers.view({4, 2}).select(1, 1));
    count = register_buffer("count", torch::full({}, 7, torch::kInt64));
    nothing = register_buffer("nothing", torch::empty({0, 3}));
  }
  Tensor forward(const Tensor& x) {
    const Tensor all = torch::cat({transposed.flatten(), gaps.flatten(),
                                   count.to(torch::kFloat32).view({1}), nothing.flatten()});
    return all.expand({x.size(0), -1});
  }
  Tensor transposed, gaps, count, nothing;
};
TORCH_MODULE(ManyBuffers);

TEST(DataParallelReplicas, HaveTheModulesBuffersOfEveryKind) {
  ManyBuffers net;
  DataParallel dp(net, cpus(3));
  const auto expect_same = [&](const char* when) {
    const Tensor x = torch::ones({5, 1});
    EXPECT_TRUE(dp.forward(x).equal(net->forward(x))) << when;
  };
  expect_same("at first");
  net->transposed.add_(1);
  net->gaps.mul_(2);
  net->count.add_(1);
  expect_same("changed in place");
  net->transposed.set_data(torch::rand({3, 2}));
  expect_same("other strides");
  net->gaps.set_data(torch::rand({9}));
  net->count.set_data(torch::full({}, 3, torch::kInt64));
  expect_same("another size");
}

// A graph may hold a replica's buffers; sending the buffers again must not corrupt it.
TEST(DataParallelReplicas, BuffersOfAGraphMaySurviveTheNextForward) {
  SmallNet net(true), oracle(true);
  copy_state(*oracle, *net);
  net->eval();
  oracle->eval();
  DataParallel dp(net, cpus(2));
  const Tensor x = normal({6, 4}, 6);
  (dp.forward(x) + dp.forward(x)).sum().backward();
  (oracle->forward(x) * 2).sum().backward();
  EXPECT_LE(difference(net->first->weight.grad(), oracle->first->weight.grad()), 1e-5);
}

TEST(DataParallelReplicas, DivideTheCallersThreads) {
  const ThreadsScope four(4);
  ProbedNet net([](const Tensor& x) { return x * 0 + at::get_num_threads(); });
  {
    const torch::NoGradGuard no_grad;
    net->linear->weight.fill_(0.25);
    net->linear->bias.fill_(0);
  }
  DataParallel dp(net, cpus(3));
  EXPECT_EQ(at::get_num_threads(), 4) << "the caller keeps its own";
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, 4) << "so do other threads";
  const Tensor threads = dp.forward(torch::ones({3, 4})).select(1, 0);
  EXPECT_EQ(threads[0].item<double>(), 2);
  EXPECT_EQ(threads[1].item<double>(), 1);
  EXPECT_EQ(threads[2].item<double>(), 1);
}

TEST(DataParallelReplicas, WorkUnderTheCallersAutocast) {
  SmallNet net;
  DataParallel dp(net, cpus(2));
  const Tensor x = normal({6, 4}, 7);
  Tensor output;
  {
    const AutocastHere half(torch::kHalf);  // a new thread's default is bfloat16
    output = dp.forward(x);
  }
  EXPECT_EQ(output.scalar_type(), torch::kHalf);
  EXPECT_EQ(dp.forward(x).scalar_type(), torch::kFloat32);
  output.sum().backward();
  EXPECT_EQ(net->first->weight.grad().scalar_type(), torch::kFloat32);
}

TEST(DataParallelReplicas, CostNoRandomNumbers) {
  SmallNet net;
  torch::manual_seed(3);
  const Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  DataParallel dp(net, cpus(2));
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST(DataParallelReplicas, ServeLockstepsOptimizers) {
  SmallNet net;
  DataParallel dp(net, cpus(2));
  Optimizer optimizer(*net, AdamWOptions{.lr = 0.01});
  const Tensor x = normal({8, 4}, 8), y = normal({8, 3}, 9);
  double before = 0, after = 0;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    const Tensor loss = dp.loss(squared_error, x, y);
    loss.backward();
    optimizer.step();
    after = loss.item<double>();
    if (step == 0) before = after;
  }
  EXPECT_LT(after, 0.9 * before);
}

// A net without clone().
struct PlainNetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    ++calls;
    return linear(x);
  }
  int calls = 0;
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 3));
};
TORCH_MODULE(PlainNet);

TEST(DataParallelOneDevice, IsThePlainModule) {
  PlainNet net;
  DataParallel dp(net, {"cpu"});
  const Tensor x = normal({5, 4}, 10), y = normal({5, 3}, 11);
  const Tensor output = dp(x);
  EXPECT_EQ(net->calls, 1);
  EXPECT_TRUE(output.equal(net->forward(x)));
  EXPECT_TRUE(dp.loss(squared_error, x, y).equal(squared_error(net->forward(x), y)));
  EXPECT_EQ(net->calls, 4);
  EXPECT_EQ(dp.forward(torch::ones({0, 4})).size(0), 0) << "also for what could not be shared out";
  EXPECT_EQ(dp.devices(), std::vector<torch::Device>{torch::Device(torch::kCPU)});
}

TEST(DataParallelOneDevice, GetsTheBatchThere) {
  const torch::Device meta(torch::kMeta);
  testing_support::WeightOnMeta net;
  net->to(meta, /*non_blocking=*/false);
  DataParallel dp(net, {meta});
  const Tensor x = normal({5, 2}, 10), y = normal({5, 2}, 11);
  EXPECT_EQ(dp.forward(x).device(), meta);
  EXPECT_EQ(dp.loss(squared_error, x, y).device(), meta);
}

// The parts must be the same objects. Equal values, or the same objects in another order, are other
// parts.
TEST(ModuleParts, AreTheSameOnlyIfEachPartIs) {
  torch::nn::Linear a(2, 2), b(2, 2);
  const Tensor one = torch::ones({2}), two = torch::ones({2});
  const ModuleParts parts = {
      .modules = {a.get(), b.get()}, .parameters = {one, two}, .buffers = {two, one}};
  const auto still_same = [&](const std::function<void(ModuleParts&)>& change) {
    ModuleParts changed = parts;
    change(changed);
    EXPECT_EQ(parts.same_as(changed), changed.same_as(parts));
    return parts.same_as(changed);
  };
  EXPECT_TRUE(still_same([](ModuleParts&) {}));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.modules[1] = a.get(); }));
  EXPECT_FALSE(still_same([](ModuleParts& all) { all.modules.pop_back(); }));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.parameters[1] = one; }));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.parameters[0] = one.clone(); }));
  EXPECT_FALSE(still_same([](ModuleParts& all) { all.parameters.pop_back(); }));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.buffers[0] = one; }));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.buffers[1] = one.clone(); }));
  EXPECT_FALSE(still_same([](ModuleParts& all) { all.buffers.pop_back(); }));
  EXPECT_FALSE(still_same([&](ModuleParts& all) { all.buffers.push_back(one); }));
}

TEST(ModuleParts, AreListedInTheOrderOfRegistration) {
  torch::nn::Linear linear(2, 3);
  torch::nn::BatchNorm1d norm(3);
  torch::nn::BatchNorm1d plain(torch::nn::BatchNorm1dOptions(3).affine(false));
  torch::nn::Sequential net(linear, norm, plain, linear);
  const ModuleParts parts = parts_of(*net);
  const std::vector<torch::nn::Module*> modules = {net.get(), linear.get(), norm.get(), plain.get(),
                                                   linear.get()};
  EXPECT_EQ(parts.modules, modules);
  const std::vector<Tensor> parameters = {linear->weight, linear->bias,   norm->weight,
                                          norm->bias,     linear->weight, linear->bias};
  const std::vector<Tensor> buffers = {norm->running_mean,        norm->running_var,
                                       norm->num_batches_tracked, plain->running_mean,
                                       plain->running_var,        plain->num_batches_tracked};
  EXPECT_TRUE(parts.same_as({parts.modules, parameters, buffers})) << "undefined ones are left out";
  EXPECT_EQ(parameter_name(*net, 2), "1.weight");
  EXPECT_EQ(buffer_name(*net, 4), "2.running_var");
  EXPECT_EQ(buffer_name(*net, 6), "number 6");
}

TEST(ModuleParts, OfAnotherDeviceAreNamed) {
  torch::nn::BatchNorm1d norm(3);
  const torch::Device meta(torch::kMeta);
  ModuleParts parts = parts_of(*norm);
  EXPECT_NO_THROW(require_place(*norm, parts, torch::kCPU));
  const auto refusal = [&] {
    return message_of<ConfigError>([&] { require_place(*norm, parts, meta); });
  };
  const std::string advice =
      " is on cpu, expected on meta, the first device; move the module there: module->to(device)";
  EXPECT_EQ(refusal(), "DataParallel: parameter 'weight'" + advice);
  parts.parameters[0] = torch::empty({3}, meta);
  EXPECT_EQ(refusal(), "DataParallel: parameter 'bias'" + advice);
  parts.parameters.clear();
  EXPECT_EQ(refusal(), "DataParallel: buffer 'running_mean'" + advice);
  parts.buffers[0] = torch::empty({3}, meta);
  EXPECT_EQ(refusal(), "DataParallel: buffer 'running_var'" + advice);
  parts.buffers.clear();
  EXPECT_NO_THROW(require_place(*norm, parts, meta));
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
