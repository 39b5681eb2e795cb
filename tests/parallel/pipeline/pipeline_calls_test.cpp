// The state after calls of a pipeline, and which tensors and devices it accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/saved_buffers.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing_support::difference;
using testing_support::make_net;
using testing_support::message_of;
using testing_support::Net;
using testing_support::no_errors;
using testing_support::run_group;

std::vector<torch::Device> two_cpus() { return std::vector<torch::Device>(2, torch::kCPU); }

Net calls_net() {
  torch::manual_seed(4);
  return {{torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::Tanh()),
           torch::nn::Sequential(torch::nn::Linear(6, 2))},
          torch::randn({8, 6}),
          torch::randint(2, {8}, torch::kInt64),
          testing_support::cross_entropy};
}

template <class AnyPipeline>
struct KnownOfAStep {
  explicit KnownOfAStep(const AnyPipeline& pipe)
      : timeline(pipe.timeline()),
        activations(pipe.peak_activations()),
        bytes(pipe.peak_activation_bytes()) {}

  // Describes what has changed; "" if nothing.
  std::string change(const AnyPipeline& pipe) const {
    if (pipe.timeline().end != timeline.end) return "the timeline";
    for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
      if (pipe.timeline().workers[worker].size() != timeline.workers[worker].size())
        return "the actions";
    }
    if (pipe.peak_activations() != activations) return "the activations";
    const ActivationBytes now = pipe.peak_activation_bytes();
    return now.stages == bytes.stages && now.workers == bytes.workers ? "" : "the bytes";
  }

  pipeline::Timeline timeline;
  std::vector<int> activations;
  ActivationBytes bytes;
};

TEST(PipelineCalls, AnEvaluationLeavesWhatIsKnownOfTheLastStep) {
  const Net net = calls_net();
  Pipeline pipe(net.stages, two_cpus(), {.micro_batches = 4, .measure_memory = true});
  pipe.step(net.criterion, net.x, net.y);
  const KnownOfAStep known(pipe);
  EXPECT_GT(known.bytes.stages[0], 0);
  pipe.forward(net.x);
  EXPECT_EQ(known.change(pipe), "");
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DistributedPipeline ranks({net.stages[static_cast<std::size_t>(group.rank())]}, group,
                              torch::kCPU, {.micro_batches = 4, .measure_memory = true});
    ranks.step(net.criterion, net.x, net.y);
    const KnownOfAStep of_rank(ranks);
    ranks.forward({net.x});
    if (of_rank.change(ranks) != "") throw Error(of_rank.change(ranks));
  });
  EXPECT_EQ(errors, no_errors(2));
}

template <class AnyPipeline>
void expect_to_switch_modes(AnyPipeline& pipe, const std::vector<pipeline::StageModule>& stages) {
  const auto expect_mode = [&](bool is_training, const char* after) {
    for (const pipeline::StageModule& stage : stages) {
      for (const auto& module : stage.module().modules()) {
        EXPECT_EQ(module->is_training(), is_training) << module->name() << " after " << after;
      }
    }
  };
  pipe.eval();
  expect_mode(false, "eval()");
  pipe.train();
  expect_mode(true, "train()");
  pipe.train(false);
  expect_mode(false, "train(false)");
  pipe.train(true);
  expect_mode(true, "train(true)");
}

TEST(PipelineCalls, SwitchAllModulesBetweenTrainingAndEvaluation) {
  const Net net = calls_net();
  Pipeline pipe(net.stages, two_cpus());
  expect_to_switch_modes(pipe, net.stages);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const std::vector<pipeline::StageModule> own = {
        net.stages[static_cast<std::size_t>(group.rank())]};
    DistributedPipeline ranks(own, group, torch::kCPU);
    expect_to_switch_modes(ranks, own);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Parameters, running statistics and what is saved for recomputation follow.
TEST(PipelineCalls, FollowModulesToAnotherDtype) {
  at::set_num_threads(1);
  const auto make = [] {
    torch::manual_seed(4);
    return Net{{torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::BatchNorm1d(6)),
                torch::nn::Sequential(torch::nn::Linear(6, 2), torch::nn::BatchNorm1d(2))},
               torch::randn({8, 6}),
               torch::randint(2, {8}, torch::kInt64),
               testing_support::cross_entropy};
  };
  for (const bool recompute : {false, true}) {
    Net net = make(), expected = make();
    Pipeline pipe(net.stages, two_cpus(),
                  {.micro_batches = 2, .recompute = recompute, .threads_per_worker = 1});
    for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kFloat32}) {
      for (Net* each : {&net, &expected}) {
        for (const auto& stage : each->stages) {
          stage.module().to(dtype);
          stage.module().zero_grad();
        }
        each->x = each->x.to(dtype);
      }
      const torch::Tensor loss = pipe.step(net.criterion, net.x, net.y);
      EXPECT_TRUE(loss.equal(testing_support::accumulate(expected, 2))) << recompute;
      EXPECT_EQ(difference(net, expected), "") << recompute << ' ' << dtype;
      EXPECT_EQ(pipe.parameters()[0].grad().scalar_type(), dtype);
    }
  }
}

TEST(PipelineCalls, KeepNoResults) {
  const Net net = calls_net();
  Pipeline pipe(net.stages, two_cpus(), {.micro_batches = 1});
  torch::Tensor output = pipe.forward(net.x);
  const auto memory = output.storage().getWeakStorageImpl();
  output = torch::Tensor();
  EXPECT_TRUE(memory.expired());
}

// Adds the second input if there is one. Returns the sum and the second input.
pipeline::StageModule adding_stage() {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(6, 6);
  return pipeline::StageModule(linear, [linear](const Tensors& inputs) -> Tensors {
    const torch::Tensor y = linear->forward(inputs[0]);
    return {inputs[1].defined() ? y + inputs[1] : y, inputs[1]};
  });
}

TEST(PipelineCalls, TakeAndReturnUndefinedTensors) {
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor&) {
    return output.square().mean();
  };
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbH1}) {
    for (const bool recompute : {false, true}) {
      torch::manual_seed(1);
      const std::vector<pipeline::StageModule> stages = {adding_stage(), adding_stage()};
      const torch::Tensor x = torch::randn({8, 6});
      Pipeline pipe(stages, two_cpus(),
                    {.micro_batches = 2, .schedule = schedule, .recompute = recompute});
      const double without =
          pipe.step(criterion, Tensors{x, torch::Tensor()}, torch::Tensor()).item<double>();
      EXPECT_TRUE(pipe.parameters()[0].grad().defined());
      EXPECT_EQ(
          pipe.step(criterion, Tensors{x, torch::zeros({8, 6})}, torch::Tensor()).item<double>(),
          without);
      const Tensors outputs = pipe.forward({x, torch::Tensor()});
      ASSERT_EQ(outputs.size(), 2U);
      EXPECT_EQ(outputs[0].size(0), 8);
      EXPECT_FALSE(outputs[1].defined());
    }
  }
}

// Without y, only the number of samples states the batch size.
TEST(PipelineCalls, OnRanksNeedNoTargetWhereTheCriterionNeedsNone) {
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor&) {
    return output.square().mean();
  };
  const Net net = calls_net();
  const auto step_with = [&](std::optional<std::int64_t> samples) {
    return run_group(2, "shm", [&](ProcessGroup group) {
      DistributedPipeline pipe({net.stages[static_cast<std::size_t>(group.rank())]}, group,
                               torch::kCPU, {.micro_batches = 4});
      const torch::Tensor loss = pipe.step(criterion, net.x, torch::Tensor(), samples);
      if (loss.defined() != (group.rank() == 1)) throw Error("the loss is on the wrong rank");
    });
  };
  EXPECT_EQ(step_with(8), no_errors(2));
  EXPECT_THAT(step_with(std::nullopt)[1], HasSubstr("needs y, or the number of samples"));
}

TEST(PipelineCalls, RefuseBatchesThatCannotBeCut) {
  const Net net = calls_net();
  Pipeline pipe(net.stages, two_cpus(), {.micro_batches = 4});
  const auto refusal = [&](const Tensors& x) {
    return message_of<ConfigError>([&] { pipe.forward(x); });
  };
  const char* const empty = "Pipeline: the batch has no samples along dimension 0";
  EXPECT_EQ(refusal({}), empty);
  EXPECT_EQ(refusal({torch::Tensor()}), empty);
  EXPECT_EQ(refusal({torch::ones({})}), empty);
  EXPECT_EQ(refusal({torch::ones({0, 6})}), empty);
  EXPECT_THAT(refusal({net.x, torch::ones({7, 6})}),
              HasSubstr("x has shape [7, 6], expected 8 samples along dimension 0"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { pipe.step(net.criterion, net.x, net.y.narrow(0, 0, 7)); }),
      HasSubstr("y has shape [7], expected 8 samples along dimension 0"));
  EXPECT_EQ(pipe.forward(net.x).size(0), 8) << "it goes on";
  Pipeline of_table(net.stages, two_cpus(), {.table = pipeline::one_forward_one_backward(2, 4)});
  EXPECT_EQ(of_table.forward(net.x.narrow(0, 0, 4)).size(0), 4);
  EXPECT_THAT(
      message_of<ConfigError>([&] { of_table.forward(net.x.narrow(0, 0, 3)); }),
      HasSubstr("a batch of 3 samples cannot be cut into the 4 micro-batches of the table"));
}

TEST(PipelineCalls, OnRanksSayOnAllWhichBatchCannotBe) {
  const Net net = calls_net();
  const auto errors_of = [&](const torch::Tensor& x, const torch::Tensor& y,
                             std::optional<std::int64_t> samples = std::nullopt) {
    return run_group(2, "shm", [&](ProcessGroup group) {
      DistributedPipeline pipe({net.stages[static_cast<std::size_t>(group.rank())]}, group,
                               torch::kCPU, {.micro_batches = 4});
      pipe.step(net.criterion, x, y, samples);
    });
  };
  EXPECT_THAT(errors_of(torch::Tensor(), net.y), Each(HasSubstr("the first rank needs x")));
  EXPECT_THAT(errors_of(torch::ones({}), net.y), Each(HasSubstr("the first rank needs x")));
  EXPECT_THAT(errors_of(net.x.narrow(0, 0, 3), net.y.narrow(0, 0, 3)),
              Each(HasSubstr("a batch of 3 samples cannot be cut into 4 micro-batches")));
  EXPECT_THAT(errors_of(net.x, net.y, 0), Each(HasSubstr("the batch has no samples")));
}

TEST(PipelineCalls, OnRanksNeedTheStagesThatTheTableExpects) {
  const Net net = calls_net();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const std::vector<pipeline::StageModule> own(group.rank() == 0 ? 1 : 3, net.stages[1]);
    DistributedPipeline pipe(own, group, torch::kCPU,
                             {.micro_batches = 4, .schedule = Schedule::kZbV});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("DistributedPipeline: rank 0 has 1 stages, table "),
                                 HasSubstr(" expects 2"))));
}

TEST(PipelineCalls, SayInOneLineThatADeviceDoesNotExist) {
  const Net net = calls_net();
  for (const torch::Device device : {torch::Device(torch::kCUDA, 99), torch::Device(torch::kXLA)}) {
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { Pipeline(net.stages, {torch::kCPU, device}, {.micro_batches = 2}); }),
                AllOf(HasSubstr(lockstep::str("Pipeline: ", device, " ")), HasSubstr("this "),
                      Not(HasSubstr("\n"))));
  }
}

// A rank's stages may have no parameters.
TEST(PipelineCalls, ClippingTakesRanksWithoutParameters) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Tensors parameters;
    if (group.rank() == 0) {
      parameters.push_back(torch::zeros({4}).requires_grad_());
      parameters[0].mutable_grad() = torch::full({4}, 3.0F);
    }
    const double norm = clip_grad_norm_(parameters, 3.0, group).item<double>();
    if (norm != 6) throw Error(str("the norm is ", norm));
    if (group.rank() == 0 && !parameters[0].grad().allclose(torch::full({4}, 1.5F), 1e-5))
      throw Error("not clipped");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The norm of all ranks' gradients together. A parameter that occurs twice counts once.
TEST(PipelineCalls, ClippingTakesEveryNorm) {
  const torch::Tensor all = torch::tensor({3.0F, -4.0F, 0.5F, 12.0F, -1.0F});
  for (const double norm_type : {1.0, 2.0, 3.0, 0.5, std::numeric_limits<double>::infinity()}) {
    const double expected = torch::linalg_vector_norm(all, norm_type).item<double>();
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      const torch::Tensor own = group.rank() == 0 ? all.narrow(0, 0, 2) : all.narrow(0, 2, 3);
      const torch::Tensor parameter = torch::zeros_like(own).requires_grad_();
      parameter.mutable_grad() = own.clone();
      const double norm =
          clip_grad_norm_({parameter, parameter}, 1.0, group, norm_type).item<double>();
      if (std::abs(norm - expected) > 1e-5 * expected) throw Error(str("the norm is ", norm));
      if (!parameter.grad().allclose(own / expected, 1e-4, 1e-6)) throw Error("not clipped");
    });
    EXPECT_EQ(errors, no_errors(2)) << norm_type;
  }
  const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
    for (const double wrong : {0.0, -1.0, std::nan("")}) {
      EXPECT_THAT(message_of<ConfigError>([&] { clip_grad_norm_({}, 1.0, group, wrong); }),
                  HasSubstr("clip_grad_norm_: norm_type must be positive"));
    }
  });
  EXPECT_EQ(errors, no_errors(1));
}

// The squares of the ranks' norms are added in float64: their sum exceeds the range of float32.
TEST(PipelineCalls, ClippingReturnsANormOfTheGradientsType) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor parameter = torch::zeros({1}, type).requires_grad_();
      parameter.mutable_grad() = torch::full({1}, 1.5e19, type);
      const torch::Tensor norm = clip_grad_norm_({parameter}, 1.0, group);
      if (norm.scalar_type() != type) throw Error(c10::toString(norm.scalar_type()));
      if (!(std::abs(norm.item<double>() / (std::sqrt(2.0) * 1.5e19) - 1) < 1e-6)) {
        throw Error(str("the norm is ", norm.item<double>()));
      }
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(PipelineCalls, WithOneTensorNeedOneOutput) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(6, 6);
  const pipeline::StageModule two(linear, [linear](const Tensors& inputs) -> Tensors {
    return {linear->forward(inputs[0]), inputs[0]};
  });
  Pipeline pipe({two}, {torch::kCPU}, {.micro_batches = 2});
  const torch::Tensor x = torch::randn({4, 6});
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.forward(x); }),
              HasSubstr("the last stage returns 2 tensors; call forward() with a list of inputs"));
  const Tensors outputs = pipe.forward(Tensors{x});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_TRUE(outputs[1].equal(x));
}

TEST(PipelineOptions, ThatCannotBeAreNamed) {
  const auto error_of = [](const PipelineOptions& options) {
    return message_of<ConfigError>([&] { pipeline::make_table(options, 2, 2, 4); });
  };
  const pipeline::Table table = pipeline::one_forward_one_backward(2, 4);
  const ReduceStage reduce = [](int, const Tensors&) {};
  EXPECT_THAT(error_of({.whole_backward = {-1}}), HasSubstr("whole_backward names stage -1 of 2"));
  EXPECT_THAT(error_of({.threads_per_worker = -1}),
              HasSubstr("threads_per_worker must be at least"));
  EXPECT_THAT(error_of({.timeout = std::chrono::milliseconds(0)}), HasSubstr("timeout must be"));
  EXPECT_THAT(error_of({.table = pipeline::one_forward_one_backward(2, 3)}),
              HasSubstr("2 workers and 3 micro-batches, expected 2, 2 and 4"));
  EXPECT_THAT(error_of({.table = with_messages(table), .reduce = reduce}),
              HasSubstr("has messages but no reductions"));
  // Messages and reductions are added where they are missing, and only there.
  const auto made = [&](PipelineOptions options) {
    return pipeline::make_table(options, 2, 2, 4).workers;
  };
  EXPECT_EQ(made({.table = table}), with_messages(table).workers);
  EXPECT_EQ(made({.table = with_messages(table)}), with_messages(table).workers);
  EXPECT_EQ(made({.table = table, .reduce = reduce}),
            with_messages(with_reductions(table)).workers);
  EXPECT_EQ(made({.table = with_messages(with_reductions(table)), .reduce = reduce}),
            with_messages(with_reductions(table)).workers);
}

TEST(PipelineOptions, ThatDoNotFitThePipelineAreNamed) {
  const auto error_of = [](const PipelineOptions& options, int stages, int workers,
                           int micro_batches) {
    return message_of<ConfigError>(
        [&] { pipeline::make_table(options, stages, workers, micro_batches); });
  };
  const pipeline::Table one_worker = pipeline::table_of("0F0,1F0,1B0,0B0\n", "mine");
  EXPECT_EQ(error_of({.table = one_worker}, 2, 1, 1), "nothing was thrown");
  EXPECT_EQ(error_of({.table = one_worker}, 2, 2, 1),
            "PipelineOptions: the table mine has 2 stages, 1 workers and 1 micro-batches, expected "
            "2, 2 and 1");
  EXPECT_THAT(error_of({.table = one_worker}, 3, 1, 1), HasSubstr("expected 3, 1 and 1"));
  EXPECT_THAT(error_of({}, 0, 2, 4), HasSubstr("needs a stage and a device at least, got 0 and 2"));
  EXPECT_THAT(error_of({}, 2, 0, 4), HasSubstr("needs a stage and a device at least, got 2 and 0"));
  EXPECT_THAT(error_of({.whole_backward = {2}}, 2, 2, 4),
              HasSubstr("whole_backward names stage 2 of 2"));
  EXPECT_EQ(error_of({.whole_backward = {1}}, 2, 2, 4), "nothing was thrown");
  EXPECT_THAT(error_of({.table = with_reductions(one_worker)}, 2, 1, 1),
              HasSubstr("the table mine has reductions; give options.reduce a function"));
  EXPECT_EQ(message_of<ConfigError>([] { schedule_name(static_cast<Schedule>(99)); }),
            "Pipeline: unknown schedule");
}

// Two floats on their own page, which can be made read-only.
class Page {
 public:
  Page()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    LOCKSTEP_CHECK(memory_ != MAP_FAILED, "no page");
  }
  ~Page() { munmap(memory_, kBytes); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  torch::Tensor tensor() const { return torch::from_blob(memory_, {2}); }
  void forbid_writes() { LOCKSTEP_CHECK(mprotect(memory_, kBytes, PROT_READ) == 0, "mprotect"); }

 private:
  static constexpr std::size_t kBytes = 4096;
  void* const memory_;
};

// While one worker restores its buffers, another worker's stage may read a buffer that both share.
TEST(SavedBuffers, AreWrittenToOnlyWhereTheyHaveChanged) {
  Page page;
  torch::nn::BatchNorm1d norm(2);
  norm->register_buffer("shared", page.tensor());
  const pipeline::SavedBuffers saved(*norm);
  page.forbid_writes();
  norm->forward(torch::randn({4, 2}));
  const auto restore = [&] {
    saved.restore();
    const bool restored = norm->running_mean.equal(torch::zeros({2})) &&
                          norm->running_var.equal(torch::ones({2})) &&
                          norm->num_batches_tracked.item<std::int64_t>() == 0;
    std::_Exit(restored ? 0 : 1);
  };
  ASSERT_FALSE(norm->running_mean.equal(torch::zeros({2})));
  EXPECT_EXIT(restore(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
