// Pipeline on threads, compared with one process that accumulates the same micro-batches.
#include <lockstep/parallel/pipeline/pipeline.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <sstream>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/parallel/pipeline/random_table.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::accumulate;
using testing_support::difference;
using testing_support::make_net;
using testing_support::message_of;
using testing_support::Net;
using testing_support::parameters_of;
using testing_support::random_table;

constexpr int kMicroBatches = 4;

std::vector<torch::Device> cpus(int count) {
  return std::vector<torch::Device>(static_cast<std::size_t>(count), torch::kCPU);
}

int workers_of(Schedule schedule) {
  return schedule == Schedule::kInterleaved || schedule == Schedule::kZbV ? 2 : 4;
}

// The nets have four stages. One OpenMP thread everywhere, because sums depend on the number of
// threads.
Pipeline pipeline_of(const Net& net, PipelineOptions options) {
  at::set_num_threads(1);
  options.threads_per_worker = 1;
  const int workers = options.table ? static_cast<int>(options.table->workers.size())
                                    : workers_of(options.schedule);
  return Pipeline(net.stages, cpus(workers), options);
}

constexpr Schedule kSchedules[] = {Schedule::kGPipe, Schedule::k1F1B, Schedule::kInterleaved,
                                   Schedule::kZbH1, Schedule::kZbV};

class PipelineNets : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PipelineNets,
                         testing::Values("mnist", "dropout", "resnet", "tied", "forked", "late"),
                         [](const auto& info) { return info.param; });

// None of these nets' batch sizes is a multiple of four, so that the last micro-batches are
// smaller.
TEST_P(PipelineNets, LearnTheSameBitsInAllSchedules) {
  at::set_num_threads(1);
  const Net expected = make_net(GetParam());
  torch::manual_seed(9);
  const torch::Tensor expected_loss = accumulate(expected, kMicroBatches);
  for (const Schedule schedule : kSchedules) {
    const Net net = make_net(GetParam());
    Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches, .schedule = schedule});
    torch::manual_seed(9);
    const torch::Tensor loss = pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << schedule_name(schedule);
    EXPECT_TRUE(loss.equal(expected_loss)) << schedule_name(schedule);
    EXPECT_FALSE(loss.requires_grad());
  }
}

TEST_P(PipelineNets, LearnTheSameBitsWithRecomputation) {
  at::set_num_threads(1);
  const Net expected = make_net(GetParam());
  torch::manual_seed(9);
  accumulate(expected, kMicroBatches);
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::kZbV}) {
    const Net net = make_net(GetParam());
    Pipeline pipe =
        pipeline_of(net, {.micro_batches = kMicroBatches, .schedule = schedule, .recompute = true});
    torch::manual_seed(9);
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << schedule_name(schedule);
  }
}

// Several steps without zero_grad(), with stages whose backward is not split.
TEST_P(PipelineNets, AccumulateOverSteps) {
  at::set_num_threads(1);
  const Net expected = make_net(GetParam());
  torch::manual_seed(9);
  for (int step = 0; step < 3; ++step) accumulate(expected, kMicroBatches);
  const Net net = make_net(GetParam());
  Pipeline pipe = pipeline_of(
      net, {.micro_batches = kMicroBatches, .schedule = Schedule::kZbH1, .whole_backward = {1, 3}});
  torch::manual_seed(9);
  for (int step = 0; step < 3; ++step) pipe.step(net.criterion, net.x, net.y);
  EXPECT_EQ(difference(net, expected), "");
}

TEST_P(PipelineNets, LearnTheSameBitsWithRandomTables) {
  at::set_num_threads(1);
  const Net expected = make_net(GetParam());
  torch::manual_seed(9);
  accumulate(expected, 3);
  std::mt19937 random(4);
  for (int trial = 0; trial < 4; ++trial) {
    const Net net = make_net(GetParam());
    const pipeline::Table table = random_table(random, 1 + trial % 4, 4, 3);
    Pipeline pipe = pipeline_of(net, {.table = table});
    torch::manual_seed(9);
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << csv(table);
  }
}

// Without batch normalisation, micro-batches change only the rounding.
TEST(Pipeline, LearnsWhatTheWholeBatchTeaches) {
  at::set_num_threads(1);
  for (const char* name : {"mnist", "tied", "forked"}) {
    const Net whole = in_double(make_net(name));
    accumulate(whole, 1);
    const Net net = in_double(make_net(name));
    Pipeline pipe = pipeline_of(net, {.micro_batches = 5});
    pipe.step(net.criterion, net.x, net.y);
    const Tensors a = parameters_of(net), b = parameters_of(whole);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double norm = b[i].grad().norm().item<double>();
      EXPECT_LE((a[i].grad() - b[i].grad()).norm().item<double>(), 1e-5 * (norm + 1e-3))
          << name << ' ' << i;
    }
  }
}

TEST(Pipeline, CutsSmallBatchesIntoFewerParts) {
  at::set_num_threads(1);
  for (const std::int64_t samples : {1, 3, 5}) {
    Net expected = make_net("mnist"), net = make_net("mnist");
    for (Net* each : {&expected, &net}) {
      each->x = each->x.narrow(0, 0, samples);
      each->y = each->y.narrow(0, 0, samples);
    }
    accumulate(expected, static_cast<int>(std::min<std::int64_t>(samples, kMicroBatches)));
    Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches});
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << samples;
  }
}

// Whether a micro-batch draws, and with which masks it is computed again, must not depend on what
// the first one does.
TEST(Pipeline, DrawsNumbersThatBeginAfterTheFirstMicroBatch) {
  at::set_num_threads(1);
  const Net expected = make_net("late");
  torch::manual_seed(9);
  accumulate(expected, kMicroBatches);
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZbV}) {
    for (const bool recompute : {false, true}) {
      const Net net = make_net("late");
      Pipeline pipe = pipeline_of(
          net, {.micro_batches = kMicroBatches, .schedule = schedule, .recompute = recompute});
      torch::manual_seed(9);
      pipe.step(net.criterion, net.x, net.y);
      EXPECT_EQ(difference(net, expected), "") << schedule_name(schedule) << ' ' << recompute;
    }
  }
}

// While `draws`, scales by a number that it takes from the default generator without an operator of
// LibTorch.
struct OwnDrawImpl : torch::nn::Module {
  explicit OwnDrawImpl(const bool& draws_)
      : draws(draws_), linear(register_module("linear", torch::nn::Linear(6, 6))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::tanh(linear->forward(x));
    if (!draws) return y;
    auto* const generator =
        at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
    const std::scoped_lock lock(generator->mutex_);
    return y * (0.5 + 1e-9 * static_cast<double>(generator->random()));
  }
  const bool& draws;
  torch::nn::Linear linear;
};
TORCH_MODULE(OwnDraw);

// No operator tells when such a module draws. In the first micro-batch of each step, a stage
// therefore has the generator from the beginning.
TEST(Pipeline, SeedsTheNumbersThatAModuleTakesFromTheGeneratorItself) {
  at::set_num_threads(1);
  bool draws = false;
  const auto make = [&]() -> Net {
    torch::manual_seed(5);
    const OwnDraw first(draws), second(draws);
    return {{first, second},
            torch::randn({8, 6}),
            torch::randn({8, 6}),
            [](const torch::Tensor& output, const torch::Tensor& y) {
              return torch::mse_loss(output, y);
            }};
  };
  const Net expected = make();
  Tensors losses;
  torch::manual_seed(6);
  for (const bool now : {false, true}) {
    draws = now;
    losses.push_back(accumulate(expected, kMicroBatches));
  }
  for (const bool recompute : {false, true}) {
    const Net net = make();
    Pipeline pipe(
        net.stages, cpus(2),
        {.micro_batches = kMicroBatches, .recompute = recompute, .threads_per_worker = 1});
    torch::manual_seed(6);
    for (const bool now : {false, true}) {
      draws = now;
      EXPECT_TRUE(pipe.step(net.criterion, net.x, net.y).equal(losses[now ? 1U : 0U])) << recompute;
    }
    EXPECT_EQ(difference(net, expected), "") << recompute;
  }
}

TEST(Pipeline, DrawsTheSameNumbersFromTheSameSeed) {
  const auto loss_with = [](std::uint64_t seed, Schedule schedule) {
    const Net net = make_net("dropout");
    Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches, .schedule = schedule});
    torch::manual_seed(seed);
    return pipe.step(net.criterion, net.x, net.y).item<double>();
  };
  EXPECT_EQ(loss_with(1, Schedule::k1F1B), loss_with(1, Schedule::k1F1B));
  EXPECT_EQ(loss_with(1, Schedule::k1F1B), loss_with(1, Schedule::kZbV));
  EXPECT_NE(loss_with(1, Schedule::k1F1B), loss_with(2, Schedule::k1F1B));
}

// A step draws one number from the default generator, whatever its stages draw.
TEST(Pipeline, LeavesTheDefaultGeneratorBehindOneDraw) {
  const auto next_after = [](const std::function<void()>& function) {
    torch::manual_seed(3);
    function();
    return torch::rand({1}).item<float>();
  };
  const Net net = make_net("dropout");
  Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches});
  EXPECT_EQ(next_after([&] { pipe.step(net.criterion, net.x, net.y); }),
            next_after([] { pipeline::draw_step_seed(); }));
}

TEST(Pipeline, ForwardGivesTheOutputsOfTheModel) {
  for (const char* name : {"dropout", "resnet", "forked"}) {
    const Net net = make_net(name);
    for (const Schedule schedule : {Schedule::k1F1B, Schedule::kInterleaved, Schedule::kZbV}) {
      Pipeline pipe = pipeline_of(net, {.micro_batches = 3, .schedule = schedule});
      pipe.eval();
      Tensors tensors{net.x};
      {
        const torch::NoGradGuard no_grad;
        for (const auto& stage : net.stages) tensors = stage.forward(tensors);
      }
      const torch::Tensor output = pipe.forward(net.x);
      EXPECT_FALSE(output.requires_grad());
      EXPECT_TRUE(output.allclose(tensors[0], 1e-5, 1e-6)) << name;
      pipe.train();
    }
  }
}

// The number of micro-batches whose graphs a worker's stages hold.
struct HeldByWorker {
  std::atomic<int> now = 0, most = 0;
};

// Each forward creates a tensor that the gradient of the weight needs. The tensor is freed when
// that gradient has been computed, at the end of B or W.
struct CountedStageImpl : torch::nn::Module {
  explicit CountedStageImpl(HeldByWorker& counter)
      : held(counter), weight(register_parameter("weight", torch::rand({6}) + 0.5)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    held.most = std::max(held.most.load(), ++held.now);
    const torch::Tensor kept =
        torch::from_blob(&one, {1}, [counter = &held](void*) { --counter->now; });
    return x * (weight * kept);
  }

  HeldByWorker& held;
  torch::Tensor weight;
  float one = 1;
};
TORCH_MODULE(CountedStage);

// The sum over a worker's stages at one time. With interleaved and zbv, each worker has two stages.
TEST(Pipeline, HoldsTheActivationsThatTheTableSays) {
  for (const Schedule schedule : kSchedules) {
    const int workers = workers_of(schedule);
    std::vector<HeldByWorker> held(static_cast<std::size_t>(workers));
    const std::vector<int> worker_of =
        pipeline::schedule_of(schedule_name(schedule), workers, 8, 4 / workers).worker_of;
    Net net{{},
            torch::randn({11, 6}),
            torch::randn({11, 6}),
            [](const torch::Tensor& output, const torch::Tensor& target) {
              return torch::mse_loss(output, target);
            }};
    for (const int worker : worker_of) {
      net.stages.emplace_back(CountedStage(held[static_cast<std::size_t>(worker)]));
    }
    Pipeline pipe = pipeline_of(net, {.micro_batches = 8, .schedule = schedule});
    pipe.step(net.criterion, net.x, net.y);
    const std::vector<int> promised = check(pipe.table()).peak_activations;
    for (std::size_t worker = 0; worker < held.size(); ++worker) {
      EXPECT_EQ(held[worker].most.load(), promised[worker])
          << schedule_name(schedule) << ", worker " << worker;
      EXPECT_EQ(held[worker].now.load(), 0) << schedule_name(schedule) << ", worker " << worker;
    }
  }
}

TEST(Pipeline, SaysHowManyActivationsEachStageHeld) {
  const auto held_by = [](Schedule schedule) {
    const Net net = make_net("mnist");
    Pipeline pipe = pipeline_of(net, {.micro_batches = 8, .schedule = schedule});
    pipe.step(net.criterion, net.x, net.y);
    return pipe.peak_activations();
  };
  EXPECT_THAT(held_by(Schedule::k1F1B), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(held_by(Schedule::kGPipe), ElementsAre(8, 8, 8, 8));
}

TEST(Pipeline, RunsATableFromAFile) {
  const Net expected = make_net("mnist"), net = make_net("mnist");
  at::set_num_threads(1);
  accumulate(expected, 2);
  const pipeline::Table table = pipeline::table_of(
      "0F0,0F1,3F0,3F1,3I0,3W0,3I1,0B0,3W1,0B1\n1F0,1F1,2F0,2F1,2B0,1B0,2B1,1B1\n", "mine");
  Pipeline pipe = pipeline_of(net, {.table = table});
  pipe.step(net.criterion, net.x, net.y);
  EXPECT_EQ(difference(net, expected), "");
  EXPECT_EQ(pipe.table().name, "mine");
}

TEST(Pipeline, RecordsATimelineAndWritesIt) {
  const Net net = make_net("mnist");
  Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches});
  pipe.step(net.criterion, net.x, net.y);
  const pipeline::Timeline& timeline = pipe.timeline();
  ASSERT_EQ(timeline.workers.size(), 4U);
  EXPECT_EQ(timeline.workers[0].size(), pipe.table().workers[0].size());
  EXPECT_GT(timeline.bubble(), 0);
  EXPECT_LT(timeline.bubble(), 1);
  EXPECT_LE(replay(pipe.table(), costs_of(timeline)).end, timeline.end * (1 + 1e-9));
  const testing_support::TemporaryDirectory directory;
  pipe.write_trace(directory.path() / "trace.json");
  std::ifstream file(directory.path() / "trace.json");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("3B3"));
  EXPECT_THAT(text.str(), HasSubstr("worker 2"));
}

TEST(Pipeline, ClipsByTheNormOfAllStages) {
  at::set_num_threads(1);
  const Net expected = make_net("tied"), net = make_net("tied");
  accumulate(expected, kMicroBatches);
  Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches});
  pipe.step(net.criterion, net.x, net.y);
  EXPECT_EQ(pipe.parameters().size(), parameters_of(net).size());
  const torch::Tensor norm = clip_grad_norm_(pipe.parameters(), 0.01);
  EXPECT_TRUE(norm.equal(clip_grad_norm_(parameters_of(expected), 0.01)));
  EXPECT_EQ(difference(net, expected), "");
}

TEST(Pipeline, AddsUpLossesThatAreSums) {
  const Net net = make_net("mnist");
  Pipeline pipe = pipeline_of(net, {.micro_batches = 3, .loss_reduction = LossReduction::kSum});
  const auto sum = [](const torch::Tensor& output, const torch::Tensor& y) {
    return torch::nn::functional::nll_loss(
        output, y, torch::nn::functional::NLLLossFuncOptions().reduction(torch::kSum));
  };
  const double got = pipe.step(sum, net.x, net.y).item<double>();
  const double expected = 11 * accumulate(make_net("mnist"), 1).item<double>();
  EXPECT_NEAR(got, expected, 1e-4 * std::abs(expected));
}

TEST(Pipeline, ReducesAStageWhenItsGradientsAreComplete) {
  at::set_num_threads(1);
  const Net expected = make_net("mnist"), net = make_net("mnist");
  accumulate(expected, kMicroBatches);
  for (const auto& parameter : parameters_of(expected)) parameter.grad().mul_(2);
  std::mutex mutex;
  std::vector<int> reduced;
  Pipeline pipe = pipeline_of(net, {.micro_batches = kMicroBatches,
                                    .schedule = Schedule::kZbV,
                                    .reduce = [&](int stage, const Tensors& parameters) {
                                      for (const auto& each : parameters) each.grad().mul_(2);
                                      const std::scoped_lock lock(mutex);
                                      reduced.push_back(stage);
                                    }});
  pipe.step(net.criterion, net.x, net.y);
  EXPECT_THAT(reduced, testing::UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_EQ(difference(net, expected), "");
}

TEST(PipelineOptions, KnowTheirSchedules) {
  EXPECT_THAT(schedule_names(), ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1", "zbv"));
  for (const std::string& name : schedule_names()) {
    EXPECT_EQ(schedule_name(schedule_named(name)), name);
  }
  EXPECT_THAT(
      message_of<ConfigError>([] { schedule_named("2f2b"); }),
      HasSubstr("schedule must be one of gpipe, 1f1b, interleaved, zb-h1, zbv, got '2f2b'"));
  EXPECT_EQ(workers_for(Schedule::kZbH1, 3), 3);
  EXPECT_EQ(workers_for(Schedule::kZbV, 4), 2);
  EXPECT_EQ(workers_for(Schedule::kInterleaved, 6), 3);
  EXPECT_THAT(message_of<ConfigError>([] { workers_for(Schedule::kZbV, 3); }),
              HasSubstr("zbv has 2 stages on each worker, got 3 stages in all"));
  EXPECT_THROW(workers_for(Schedule::kGPipe, 0), ConfigError);
}

TEST(Pipeline, SaysWhichOptionsCannotBe) {
  const Net net = make_net("mnist");
  const auto error_of = [&](int devices, const PipelineOptions& options) {
    return message_of<ConfigError>([&] { Pipeline(net.stages, cpus(devices), options); });
  };
  EXPECT_THAT(error_of(3, {}), HasSubstr("the schedule 1f1b has 3 stages on 3 workers, got 4"));
  EXPECT_THAT(error_of(0, {}), HasSubstr("needs a stage and a device at least, got 4 and 0"));
  EXPECT_THAT(error_of(4, {.micro_batches = 0}), HasSubstr("micro_batches must be at least 1"));
  EXPECT_THAT(error_of(1, {.schedule = Schedule::kZbV}), HasSubstr("zbv has 2 stages"));
  EXPECT_THAT(error_of(3, {.schedule = Schedule::kInterleaved}), HasSubstr("interleaved has 3"));
  EXPECT_THAT(error_of(4, {.table = pipeline::gpipe(2, 2)}), HasSubstr("has 2 stages, 2 workers"));
  EXPECT_THAT(error_of(1, {.table = pipeline::table_of("0F0,0I0\n", "mine")}),
              HasSubstr("must be whole, or split"));
  EXPECT_THAT(error_of(4, {.whole_backward = {4}}), HasSubstr("names stage 4 of 4"));
  EXPECT_THAT(error_of(4, {.table = with_reductions(pipeline::gpipe(4, 2))}),
              HasSubstr("has reductions; give options.reduce"));
}

}  // namespace
}  // namespace lockstep
