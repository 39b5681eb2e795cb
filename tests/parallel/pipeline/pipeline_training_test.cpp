// Several steps with Pipeline: the resulting weights, and what remains after a thousand steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <tests/parallel/autocast_here.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/parallel/weight_on_meta.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::accumulate;
using testing_support::AutocastHere;
using testing_support::buffers_of;
using testing_support::difference;
using testing_support::make_net;
using testing_support::message_of;
using testing_support::Net;
using testing_support::parameters_of;

constexpr int kCourseSteps = 5;
constexpr int kCourseParts = 4;
constexpr Schedule kAllSchedules[] = {Schedule::kGPipe, Schedule::k1F1B, Schedule::kInterleaved,
                                      Schedule::kZbH1, Schedule::kZbV};

// The nets have four stages.
Pipeline pipeline_with(const Net& net, PipelineOptions options) {
  at::set_num_threads(1);
  options.threads_per_worker = 1;
  const int workers = workers_for(options.schedule, static_cast<int>(net.stages.size()));
  return Pipeline(net.stages,
                  std::vector<torch::Device>(static_cast<std::size_t>(workers), torch::kCPU),
                  options);
}

// The result of five training steps.
struct Course {
  Tensors gradients;  // after the first step
  Tensors weights;
  Tensors buffers;
};

Course taken(const Net& net, const std::function<void()>& step) {
  const Tensors parameters = parameters_of(net);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.01));
  Course course;
  for (int i = 0; i < kCourseSteps; ++i) {
    optimizer.zero_grad();
    step();
    for (const auto& each : parameters) {
      if (i == 0) course.gradients.push_back(each.grad().clone());
    }
    optimizer.step();
  }
  for (const auto& each : parameters) course.weights.push_back(each.detach().clone());
  for (const auto& each : buffers_of(net)) course.buffers.push_back(each.clone());
  return course;
}

void expect_same_bits(const Tensors& got, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].equal(expected[i])) << what << ' ' << i;
  }
}

class PipelineCourses : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PipelineCourses,
                         testing::Values("mnist", "dropout", "resnet", "tied", "forked"),
                         [](const auto& info) { return info.param; });

TEST_P(PipelineCourses, EndWithTheSameBitsInAllSchedules) {
  at::set_num_threads(1);
  const Net alone = make_net(GetParam());
  torch::manual_seed(9);
  const Course expected = taken(alone, [&] { accumulate(alone, kCourseParts); });
  for (const Schedule schedule : kAllSchedules) {
    const Net net = make_net(GetParam());
    Pipeline pipe = pipeline_with(net, {.micro_batches = kCourseParts, .schedule = schedule});
    torch::manual_seed(9);
    const Course got = taken(net, [&] { pipe.step(net.criterion, net.x, net.y); });
    const std::string name(schedule_name(schedule));
    expect_same_bits(got.gradients, expected.gradients, name + " gradient");
    expect_same_bits(got.weights, expected.weights, name + " weight");
    expect_same_bits(got.buffers, expected.buffers, name + " buffer");
  }
}

void expect_close_to(const Tensors& got, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double norm = expected[i].norm().item<double>();
    EXPECT_LE((got[i] - expected[i]).norm().item<double>(), 1e-5 * (norm + 1e-3)) << what << i;
  }
}

// Without batch normalisation, the oracle is one device with the whole batch.
TEST(PipelineCourse, IsThatOfOneDeviceInAllSchedules) {
  at::set_num_threads(1);
  for (const char* name : {"mnist", "tied", "forked"}) {
    const Net alone = in_double(make_net(name));
    const Course expected = taken(alone, [&] { accumulate(alone, 1); });
    for (const Schedule schedule : kAllSchedules) {
      const Net net = in_double(make_net(name));
      Pipeline pipe = pipeline_with(net, {.micro_batches = kCourseParts, .schedule = schedule});
      const Course got = taken(net, [&] { pipe.step(net.criterion, net.x, net.y); });
      const std::string what = lockstep::str(name, ' ', schedule_name(schedule), ' ');
      expect_close_to(got.gradients, expected.gradients, what + "gradient ");
      expect_close_to(got.weights, expected.weights, what + "weight ");
    }
  }
}

Net tiny_net() {
  torch::manual_seed(6);
  const torch::nn::Sequential first(torch::nn::Linear(4, 4), torch::nn::Tanh());
  return {{first, torch::nn::Linear(4, 2)},
          torch::randn({7, 4}),
          torch::randn({7, 2}),
          [](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::mse_loss(output, target);
          }};
}

// In every hundredth step a criterion fails, and the step is repeated.
TEST(PipelineStress, AThousandStepsOfASmallNet) {
  at::set_num_threads(1);
  constexpr int kSteps = 1000;
  const Net alone = tiny_net(), net = tiny_net();
  torch::optim::SGD expected(parameters_of(alone), torch::optim::SGDOptions(0.02));
  torch::optim::SGD optimizer(parameters_of(net), torch::optim::SGDOptions(0.02));
  Pipeline pipe = pipeline_with(net, {.micro_batches = 3, .schedule = Schedule::kZbH1});
  int calls = 0;
  const auto failing = [&](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
    ++calls;
    throw DataError("unlucky");
  };
  for (int step = 0; step < kSteps; ++step) {
    if (step % 100 == 50) {
      ASSERT_THAT(message_of<DataError>([&] { pipe.step(failing, net.x, net.y); }),
                  HasSubstr("failed in stage 1 at 1F0: unlucky"));
    }
    optimizer.zero_grad();
    pipe.step(net.criterion, net.x, net.y);
    optimizer.step();
    expected.zero_grad();
    accumulate(alone, 3);
    expected.step();
  }
  EXPECT_EQ(calls, kSteps / 100);
  expect_same_bits(parameters_of(net), parameters_of(alone), "weight");
}

// Micro-batches must not share a cached cast of a weight, and neither must a forward without a
// graph and its recomputation.
TEST(PipelineAutocast, OfTheCallerGivesTheBitsOfOneProcess) {
  at::set_num_threads(1);
  const Net alone = make_net("mnist");
  {
    const AutocastHere half(torch::kBFloat16);
    const pipeline::CastsPerMicroBatch casts;
    accumulate(alone, kCourseParts);
  }
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbV}) {
    for (const bool recompute : {false, true}) {
      const Net net = make_net("mnist");
      Pipeline pipe = pipeline_with(
          net, {.micro_batches = kCourseParts, .schedule = schedule, .recompute = recompute});
      const AutocastHere half(torch::kBFloat16);
      pipe.step(net.criterion, net.x, net.y);
      EXPECT_EQ(difference(net, alone), "") << schedule_name(schedule) << ' ' << recompute;
    }
  }
}

// A new thread would use autocast's default type, which is bfloat16.
TEST(PipelineAutocast, ComputesInTheCallersType) {
  const Net net = make_net("mnist");
  Pipeline pipe = pipeline_with(net, {.micro_batches = kCourseParts});
  torch::ScalarType computed = torch::kFloat32;
  const auto criterion = [&](const torch::Tensor& output, const torch::Tensor& target) {
    computed =
        torch::mm(target.to(torch::kFloat32).unsqueeze(1), target.to(torch::kFloat32).unsqueeze(0))
            .scalar_type();
    return net.criterion(output, target);
  };
  const AutocastHere half(torch::kHalf);
  pipe.step(criterion, net.x, net.y);
  EXPECT_EQ(computed, torch::kHalf);
}

// Adds a parameter to its one-sample input, so that the input's gradient and the parameter's
// gradient have the same values.
struct ShiftImpl : torch::nn::Module {
  explicit ShiftImpl(std::int64_t size)
      : shift(register_parameter("shift", torch::linspace(-1, 1, size))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x + shift.unsqueeze(0)); }
  torch::Tensor shift;
};
TORCH_MODULE(Shift);

Net shifting_net() {
  torch::manual_seed(7);
  return {{torch::nn::Sequential(torch::nn::Linear(6, 6)), Shift(6), Shift(6),
           torch::nn::Sequential(torch::nn::Linear(6, 2))},
          torch::randn({5, 6}),
          torch::randint(2, {5}, torch::kInt64),
          testing_support::cross_entropy};
}

TEST(PipelineMessages, ShareNoMemoryWithGradientsOfParameters) {
  const Net alone = shifting_net();
  at::set_num_threads(1);
  accumulate(alone, 5);
  for (const Schedule schedule : kAllSchedules) {
    const Net net = shifting_net();
    pipeline_with(net, {.micro_batches = 5, .schedule = schedule})
        .step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, alone), "") << schedule_name(schedule);
  }
}

TEST(PipelineRecompute, RefusesAStageThatChangesItsInput) {
  Net net = shifting_net();
  const torch::nn::Sequential last(
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.5).inplace(true)),
      torch::nn::Linear(6, 2));
  net.stages.back() = last;
  Pipeline pipe = pipeline_with(net, {.micro_batches = 5, .recompute = true});
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(net.criterion, net.x, net.y); }),
              HasSubstr("in stage 3 at 3F0: the stage changes its inputs in place"));
}

TEST(PipelineTies, AreNotReducedStageByStage) {
  const Net net = make_net("tied");
  EXPECT_THAT(
      message_of<ConfigError>([&] { pipeline_with(net, {.reduce = [](int, const Tensors&) {}}); }),
      HasSubstr("do not set options.reduce, and reduce the gradients after step()"));
}

// Moving the second stage also moves the weight that the first stage shares with it.
TEST(PipelineTies, AreRefusedBetweenDevices) {
  const testing_support::WeightOnMeta shared;
  EXPECT_THAT(message_of<ConfigError>([&] {
                Pipeline({shared, shared}, {torch::kCPU, torch::kMeta}, {.micro_batches = 2});
              }),
              HasSubstr("Pipeline: parameter 'weight' of stage 0 belongs to a stage on meta, too; "
                        "stages on different devices cannot share a parameter"));
}

TEST(PipelineDevices, AStageThatWasMovedAfterwardsIsNamed) {
  testing_support::WeightOnMeta first, second;
  Pipeline pipe({first, second}, {torch::kCPU, torch::kCPU}, {.micro_batches = 2});
  const auto criterion = [](const torch::Tensor& y, const torch::Tensor&) { return y.sum(); };
  const torch::Tensor x = torch::ones({4, 2});
  pipe.step(criterion, x, x);
  second->to(torch::Device(torch::kMeta), /*non_blocking=*/false);
  for (const bool trains : {true, false}) {
    EXPECT_THAT(
        message_of<ConfigError>([&] {
          if (trains) {
            pipe.step(criterion, x, x);
          } else {
            pipe.forward(x);
          }
        }),
        HasSubstr("Pipeline: parameter 'weight' of stage 1 is on meta and was on cpu when the "
                  "pipeline was constructed; construct another pipeline after moving a stage"));
  }
}

// A shared weight that is frozen when the pipeline is created and trained later.
TEST(PipelineTies, MayBeFrozenAndThawed) {
  const Net alone = make_net("tied");
  at::set_num_threads(1);
  accumulate(alone, kCourseParts);
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbV}) {
    const Net net = make_net("tied");
    const torch::Tensor shared = parameters_of(net)[0];
    shared.set_requires_grad(false);
    Pipeline pipe = pipeline_with(net, {.micro_batches = kCourseParts, .schedule = schedule});
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_FALSE(shared.grad().defined());
    shared.set_requires_grad(true);
    for (const auto& each : parameters_of(net)) each.mutable_grad() = torch::Tensor();
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, alone), "") << schedule_name(schedule);
  }
}

TEST(PipelineTies, AreReducedStageByStageOnlyWhileTheyAreFrozen) {
  const Net net = make_net("tied");
  const torch::Tensor shared = parameters_of(net)[0];
  shared.set_requires_grad(false);
  Pipeline pipe =
      pipeline_with(net, {.micro_batches = kCourseParts, .reduce = [](int, const Tensors&) {}});
  EXPECT_NO_THROW(pipe.step(net.criterion, net.x, net.y));
  shared.set_requires_grad(true);
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(net.criterion, net.x, net.y); }),
              HasSubstr("do not set options.reduce"));
}

// Two workers would write to the running statistics at the same time.
TEST(PipelineSharedBuffers, AreRefusedWhereSeveralWorkersWriteToThem) {
  namespace nn = torch::nn;
  const auto make = [](const auto& norm, Schedule schedule) {
    const nn::Sequential first(nn::Linear(6, 6), norm), second(nn::Linear(6, 6), nn::Tanh()),
        third(nn::Linear(6, 6), nn::Tanh()), fourth(norm, nn::Linear(6, 2));
    Net net{{first, second, third, fourth},
            torch::randn({8, 6}),
            torch::randint(2, {8}, torch::kInt64),
            testing_support::cross_entropy};
    Pipeline pipe = pipeline_with(net, {.micro_batches = 2, .schedule = schedule});
    pipe.step(net.criterion, net.x, net.y);
  };
  EXPECT_THAT(message_of<ConfigError>([&] { make(nn::BatchNorm1d(6), Schedule::k1F1B); }),
              HasSubstr("stages 0 and 3 share a torch::nn::BatchNorm1dImpl, whose running "
                        "statistics their workers would write to"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                make(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(6).track_running_stats(true)),
                     Schedule::k1F1B);
              }),
              HasSubstr("stages 0 and 3 share a torch::nn::InstanceNorm1dImpl"));
  // With zbv, one worker has both stages. Without running statistics, nothing is written.
  EXPECT_NO_THROW(make(nn::BatchNorm1d(6), Schedule::kZbV));
  EXPECT_NO_THROW(
      make(nn::BatchNorm1d(nn::BatchNorm1dOptions(6).track_running_stats(false)), Schedule::k1F1B));
}

// A worker that called its own pipeline would begin a step in the middle of another one.
TEST(PipelineMembers, ThatCallTheirOwnPipelineAreRefused) {
  std::function<void()> inside = [] {};
  const auto linear = std::make_shared<torch::nn::LinearImpl>(4, 4);
  const pipeline::StageModule stage(linear, [&, linear](const Tensors& inputs) -> Tensors {
    inside();
    return {linear->forward(inputs[0])};
  });
  Pipeline pipe(std::vector<pipeline::StageModule>(1, stage),
                std::vector<torch::Device>(1, torch::kCPU),
                {.micro_batches = 2, .threads_per_worker = 1});
  const auto sum = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  const torch::Tensor x = torch::ones({4, 4});
  inside = [&] { pipe.forward(x); };
  EXPECT_THAT(
      message_of<ConfigError>([&] { pipe.step(sum, x, torch::Tensor()); }),
      HasSubstr("a replica or stage called the DataParallel or Pipeline that it belongs to"));
  inside = [] {};
  EXPECT_NO_THROW(pipe.step(sum, x, torch::Tensor()));
}

// The forward that calls the inner pipeline holds the generator, for which the inner stages would
// wait. An inner pipeline on this thread would wait for itself.
TEST(PipelineMembers, ThatCallAnotherPipelineAreRefused) {
  const torch::Tensor x = torch::ones({4, 4});
  const std::vector<torch::Device> cpu(1, torch::kCPU);
  const auto linear = std::make_shared<torch::nn::LinearImpl>(4, 4);
  Pipeline inner(std::vector<pipeline::StageModule>(1, linear), cpu,
                 {.micro_batches = 2, .threads_per_worker = 1});
  bool calls_inner = true;
  const pipeline::StageModule stage(linear, [&, linear](const Tensors& inputs) -> Tensors {
    if (calls_inner) inner.forward(inputs[0]);
    return {linear->forward(inputs[0])};
  });
  Pipeline outer(std::vector<pipeline::StageModule>(1, stage), cpu,
                 {.micro_batches = 2, .threads_per_worker = 1});
  EXPECT_THAT(message_of<ConfigError>([&] { outer.forward(x); }),
              HasSubstr("a Pipeline was called inside a stage of another one"));
  calls_inner = false;
  EXPECT_EQ(outer.forward(x).size(0), 4);
  EXPECT_EQ(inner.forward(x).size(0), 4) << "the failed call has left nothing behind";
}

// --- Weights that stages on several ranks share

// Each rank makes a net of its own, as processes do. They share the generator.
Net tied_net_of_rank() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  return testing_support::in_double(make_net("tied"));
}

NamedTensors numbered(const Tensors& tensors) {
  NamedTensors named;
  for (const torch::Tensor& tensor : tensors) named.emplace_back(str(named.size()), tensor);
  return named;
}

torch::Tensor weight_in(const Net& net, int stage) {
  return net.stages[static_cast<std::size_t>(stage)].module().named_parameters()["weight"];
}

// The first and the last stage have copies. Each step of the optimizer is for two batches, whose
// gradients are accumulated, and is clipped.
TEST(DistributedPipelineTies, LearnLikeOneProcess) {
  at::set_num_threads(1);
  constexpr int kRanks = 4, kBatches = 2;
  constexpr double kMaxNorm = 0.25;
  const SgdOptions options{.lr = 0.3, .momentum = 0.9};
  const Net expected = tied_net_of_rank();
  Optimizer of_one(numbered(parameters_of(expected)), options);
  std::vector<double> norms;
  for (int step = 0; step < kCourseSteps; ++step) {
    of_one.zero_grad();
    for (int batch = 0; batch < kBatches; ++batch) accumulate(expected, kCourseParts);
    norms.push_back(clip_grad_norm_(parameters_of(expected), kMaxNorm).item<double>());
    ASSERT_GT(norms.back(), kMaxNorm) << "nothing is clipped, so that this tests nothing";
    of_one.step();
  }
  for (const char* backend : {"shm", "gloo"}) {
    std::vector<torch::Tensor> copies(kRanks);
    const auto errors = testing_support::run_group(kRanks, backend, [&](ProcessGroup group) {
      at::set_num_threads(1);
      const int rank = group.rank();
      const Net net = tied_net_of_rank();
      PipelineOptions of_pipeline{.micro_batches = kCourseParts};
      if (rank == 0 || rank == kRanks - 1) {
        const torch::Tensor copy = weight_in(net, rank);
        of_pipeline.tied = {{"words", copy}};
        const torch::NoGradGuard no_grad;
        if (rank > 0) copy.add_(1);  // gets the first rank's values
      }
      const auto& stage = net.stages[static_cast<std::size_t>(rank)];
      DistributedPipeline pipe({stage}, group, torch::kCPU, of_pipeline);
      Optimizer optimizer(numbered(pipe.parameters()), options);
      for (const double expected_norm : norms) {
        optimizer.zero_grad();
        for (int batch = 0; batch < kBatches; ++batch) pipe.step(net.criterion, net.x, net.y);
        const double norm = clip_grad_norm_(pipe.parameters(), kMaxNorm, group).item<double>();
        if (!(std::abs(norm / expected_norm - 1) < 1e-10)) {
          throw Error(str("the norm is ", norm, ", expected ", expected_norm));
        }
        optimizer.step();
      }
      const Tensors got = stage.module().parameters();
      const Tensors wanted = expected.stages[static_cast<std::size_t>(rank)].module().parameters();
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!got[i].allclose(wanted[i], 1e-9, 1e-11)) throw Error(str("parameter ", i, " differs"));
      }
      if (!of_pipeline.tied.empty()) copies[static_cast<std::size_t>(rank)] = weight_in(net, rank);
      group.barrier();
    });
    EXPECT_EQ(errors, testing_support::no_errors(kRanks)) << backend;
    ASSERT_TRUE(copies.front().defined() && copies.back().defined());
    EXPECT_TRUE(copies.front().equal(copies.back())) << backend;
  }
}

// Once the pipeline has ended, its tensors are ordinary ones for clip_grad_norm_().
TEST(DistributedPipelineTies, AreForgottenWithThePipeline) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::Linear linear(torch::nn::LinearOptions(2, 2).bias(false));
    const auto norm = [&] {
      linear->weight.mutable_grad() = torch::full({2, 2}, 1.5);
      return clip_grad_norm_({linear->weight}, 1e6, group).item<double>();
    };
    {
      DistributedPipeline pipe({linear}, group, torch::kCPU, {.tied = {{"w", linear->weight}}});
      if (norm() != 3) throw Error("the copies count twice");
      group.barrier();
    }
    if (std::abs(norm() - 3 * std::sqrt(2.0)) > 1e-6) throw Error("still taken for copies");
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

TEST(DistributedPipelineTies, ThatCannotBeAreRefusedOnAllRanks) {
  struct Case {
    const char* expected;
    std::function<void(PipelineOptions&, const Tensors& own, std::size_t rank)> change;
  };
  const Case cases[] = {
      {"PipelineOptions::tied: only rank 1 lists 'words'; list it on every rank that has a copy",
       [](PipelineOptions& options, const Tensors& own, std::size_t rank) {
         if (rank == 1) options.tied = {{"words", own[0]}};
       }},
      {"rank 0: PipelineOptions::tied: 'words' is not a parameter of this rank's stages",
       [](PipelineOptions& options, const Tensors& own, std::size_t rank) {
         options.tied = {{"words", rank == 0 ? torch::zeros({4, 4}) : own[0]}};
       }},
      {"rank 0: PipelineOptions::tied: 'words' is listed twice",
       [](PipelineOptions& options, const Tensors& own, std::size_t) {
         options.tied = {{"words", own[0]}, {"words", own[1]}};
       }},
      {"rank 0: PipelineOptions::tied: 'again' is listed twice",
       [](PipelineOptions& options, const Tensors& own, std::size_t) {
         options.tied = {{"words", own[0]}, {"again", own[0]}};
       }},
      {"rank 0: PipelineOptions::tied: a name must be one line of text",
       [](PipelineOptions& options, const Tensors& own, std::size_t) {
         options.tied = {{"two\nlines", own[0]}};
       }},
      {"PipelineOptions::tied: 'words' is Float [4, 4] with strides [4, 1] on rank 0 and Float [4] "
       "with strides [1] on rank 1",
       [](PipelineOptions& options, const Tensors& own, std::size_t rank) {
         options.tied = {{"words", own[rank]}};
       }},
      {"rank 0: PipelineOptions: the gradients of tied weights are complete only when the step has "
       "ended; do not set options.reduce",
       [](PipelineOptions& options, const Tensors& own, std::size_t) {
         options.tied = {{"words", own[0]}};
         options.reduce = [](int, const Tensors&) {};
       }},
  };
  for (const Case& c : cases) {
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      const torch::nn::Linear linear(4, 4);
      PipelineOptions options{.micro_batches = 2};
      c.change(options, linear->parameters(), static_cast<std::size_t>(group.rank()));
      DistributedPipeline pipe({linear}, group, torch::kCPU, options);
    });
    EXPECT_THAT(errors, testing::Each(HasSubstr(c.expected)));
  }
  const torch::nn::Linear linear(4, 4);
  EXPECT_THAT(message_of<ConfigError>([&] {
                Pipeline({linear}, {torch::kCPU}, {.tied = {{"words", linear->weight}}});
              }),
              HasSubstr("Pipeline: PipelineOptions::tied is only for DistributedPipeline"));
}

}  // namespace
}  // namespace lockstep
