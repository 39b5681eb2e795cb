// DistributedPipeline with ranks as threads, compared with one process, and with a rank that dies.
#include <lockstep/parallel/pipeline/distributed_pipeline.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>

#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/parallel/pipeline/pipeline_trace.h>
#include <tests/parallel/autocast_here.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>
#include <tests/support/immovable.h>
#include <tests/support/moment.h>
#include <tests/support/survivors.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::accumulate;
using testing_support::AutocastHere;
using testing_support::difference;
using testing_support::make_net;
using testing_support::Moment;
using testing_support::Net;
using testing_support::no_errors;
using testing_support::parameters_of;
using testing_support::run_group;
using testing_support::run_group_processes;
using testing_support::Survivors;

constexpr int kRankMicroBatches = 4;

// Nets draw from the process's generator, which the rank threads share, so that they are created
// one at a time.
template <class Function>
auto one_at_a_time(const Function& function) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  return function();
}

// The stages of rank `rank` out of `ranks`. All four nets have four stages.
std::vector<pipeline::StageModule> stages_of(const Net& net, Schedule schedule, int rank,
                                             int ranks) {
  std::vector<pipeline::StageModule> own;
  for (int s = 0; s < 4; ++s) {
    const int of_zbv = std::min(s, 2 * ranks - 1 - s);
    if ((schedule == Schedule::kZbV ? of_zbv : s % ranks) == rank) {
      own.push_back(net.stages[static_cast<std::size_t>(s)]);
    }
  }
  return own;
}

struct RankCase {
  const char* backend;
  const char* net;
  Schedule schedule;
};

void PrintTo(const RankCase& c, std::ostream* out) {
  *out << c.backend << ' ' << c.net << ' ' << schedule_name(c.schedule);
}

class DistributedPipelines : public testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DistributedPipelines,
                         testing::Values(RankCase{"shm", "mnist", Schedule::k1F1B},
                                         RankCase{"shm", "mnist", Schedule::kZbH1},
                                         RankCase{"shm", "resnet", Schedule::kGPipe},
                                         RankCase{"shm", "forked", Schedule::kInterleaved},
                                         RankCase{"shm", "resnet", Schedule::kZbV},
                                         RankCase{"shm", "tied", Schedule::kZbV},
                                         RankCase{"gloo", "mnist", Schedule::k1F1B},
                                         RankCase{"gloo", "forked", Schedule::kZbV}));

TEST_P(DistributedPipelines, LearnTheSameBitsAsOneProcess) {
  at::set_num_threads(1);
  const auto& [backend, name, schedule] = GetParam();
  const bool two = schedule == Schedule::kZbV || schedule == Schedule::kInterleaved;
  const int ranks = two ? 2 : 4;
  const Net expected = make_net(name);
  const double loss = accumulate(expected, kRankMicroBatches).item<double>();
  const Tensors of_expected = parameters_of(expected);
  const double norm = get_total_norm([&] {
                        Tensors gradients;
                        for (const auto& each : of_expected) gradients.push_back(each.grad());
                        return gradients;
                      }())
                          .item<double>();
  // The ranks share one net, and each moves only its own stages.
  const Net net = make_net(name);
  const auto errors = run_group(ranks, backend, [&, schedule = schedule](ProcessGroup group) {
    at::set_num_threads(1);
    DistributedPipeline pipe(stages_of(net, schedule, group.rank(), ranks), group, torch::kCPU,
                             {.micro_batches = kRankMicroBatches, .schedule = schedule});
    const bool first = group.rank() == 0;
    const bool last = pipe.table().worker_of.back() == group.rank();
    const torch::Tensor nothing;
    const torch::Tensor got =
        pipe.step(net.criterion, first ? net.x : nothing, last ? net.y : nothing);
    if (got.defined() != last) throw Error("the loss is on the wrong rank");
    if (last && got.item<double>() != loss) throw Error(str("the loss is ", got.item<double>()));
    group.barrier();
    if (first && difference(net, expected) != "") throw Error(difference(net, expected));
    group.barrier();
    const double clipped = clip_grad_norm_(pipe.parameters(), 1e6, group).item<double>();
    if (std::abs(clipped - norm) > 1e-5 * norm) throw Error(str("the norm is ", clipped));
  });
  EXPECT_EQ(errors, no_errors(ranks));
}

// Returns its input and its negative.
struct SignsImpl : torch::nn::Module {
  Tensors forward(const torch::Tensor& x) { return {x, -x}; }
};
TORCH_MODULE(Signs);

TEST(DistributedPipeline, GivesAllOutputsToACriterionOfAList) {
  torch::manual_seed(1);
  const torch::nn::Linear linear(4, 4);
  const torch::Tensor x = torch::randn({8, 4}), y = torch::randn({8, 4});
  const auto criterion = [](at::TensorList outputs, const torch::Tensor& target) {
    return torch::mse_loss(outputs[0], target) + torch::mse_loss(outputs[1], target);
  };
  const torch::Tensor output = torch::nn::Linear(linear)->forward(x).detach();
  const double expected = criterion(Tensors{output, -output}, y).item<double>();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const pipeline::StageModule stage =
        group.rank() == 0 ? pipeline::StageModule(linear) : pipeline::StageModule(Signs());
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 2});
    const torch::Tensor loss = pipe.step(criterion, x, y);
    if (group.rank() == 1 && std::abs(loss.item<double>() - expected) > 1e-5 * expected) {
      throw Error(str("the loss is ", loss.item<double>(), ", expected ", expected));
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

torch::Tensor sum_of_losses(const torch::Tensor& output, const torch::Tensor& y) {
  return at::nll_loss(output, y, {}, at::Reduction::Sum);
}

// The batch of eleven is divided into parts of three and two, which a mean would weight.
TEST(DistributedPipeline, AddsUpLossesThatAreSums) {
  at::set_num_threads(1);
  const Net expected = make_net("mnist"), net = make_net("mnist");
  const double loss = 11 * accumulate(expected, 1).item<double>();
  for (const auto& parameter : parameters_of(expected)) parameter.grad().mul_(11);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    DistributedPipeline pipe(stages_of(net, Schedule::kZbV, group.rank(), 2), group, torch::kCPU,
                             {.micro_batches = kRankMicroBatches,
                              .schedule = Schedule::kZbV,
                              .loss_reduction = LossReduction::kSum});
    const bool last = pipe.table().worker_of.back() == group.rank();
    const torch::Tensor got = pipe.step(sum_of_losses, net.x, net.y);
    if (last && std::abs(got.item<double>() - loss) > 1e-4 * std::abs(loss)) {
      throw Error(str("the loss is ", got.item<double>(), ", expected ", loss));
    }
    group.barrier();
    if (group.rank() != 0) return;
    const Tensors own = parameters_of(net), others = parameters_of(expected);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i].grad().allclose(others[i].grad(), 1e-3, 1e-4)) continue;
      throw Error(str("another gradient of parameter ", i));
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DistributedPipeline, RefusesDifferentReductions) {
  const Net net = make_net("mnist");
  const auto errors = run_group(2, "shm", [&](const ProcessGroup& group) {
    const LossReduction reduction = group.rank() == 0 ? LossReduction::kMean : LossReduction::kSum;
    DistributedPipeline(stages_of(net, Schedule::kZbV, group.rank(), 2), group, torch::kCPU,
                        {.micro_batches = kRankMicroBatches,
                         .schedule = Schedule::kZbV,
                         .loss_reduction = reduction});
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks 0 and 1 have different tables or loss reductions")));
}

TEST(DistributedPipeline, ForwardGivesTheOutputsOnTheLastRank) {
  at::set_num_threads(1);
  const Net net = make_net("mnist");
  torch::Tensor expected;
  {
    const torch::NoGradGuard no_grad;
    Tensors tensors{net.x};
    for (const auto& stage : net.stages) tensors = stage.forward(tensors);
    expected = tensors[0];
  }
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    DistributedPipeline pipe(stages_of(net, Schedule::k1F1B, group.rank(), 4), group, torch::kCPU,
                             {.micro_batches = 3});
    pipe.eval();
    const Tensors outputs = pipe.forward(group.rank() == 0 ? Tensors{net.x} : Tensors{});
    if (outputs.size() != (group.rank() == 3 ? 1U : 0U)) throw Error("outputs on the wrong rank");
    if (group.rank() == 3 && !outputs[0].allclose(expected, 1e-5, 1e-6)) throw Error("differs");
  });
  EXPECT_EQ(errors, no_errors(4));
}

// The last batch of an epoch is often smaller.
TEST(DistributedPipeline, TakesASmallerBatchWhereAllRanksKnowItsSize) {
  at::set_num_threads(1);
  constexpr int kSamples = 2;
  const auto small_net = [] {
    Net net = make_net("mnist");
    net.x = net.x.narrow(0, 0, kSamples);
    net.y = net.y.narrow(0, 0, kSamples);
    return net;
  };
  const Net expected = small_net();
  const double loss = accumulate(expected, kSamples).item<double>();
  const Net net = small_net();
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    DistributedPipeline pipe(stages_of(net, Schedule::k1F1B, group.rank(), 4), group, torch::kCPU,
                             {.micro_batches = kRankMicroBatches});
    const bool first = group.rank() == 0, last = group.rank() == 3;
    const torch::Tensor nothing;
    const torch::Tensor got =
        pipe.step(net.criterion, first ? net.x : nothing, last ? net.y : nothing, kSamples);
    if (last && got.item<double>() != loss) throw Error(str("the loss is ", got.item<double>()));
    group.barrier();
    if (first && difference(net, expected) != "") throw Error(difference(net, expected));
    group.barrier();
    const Tensors outputs = pipe.forward(first ? Tensors{net.x} : Tensors{}, kSamples);
    if (last && outputs.at(0).size(0) != kSamples) throw Error("outputs of another batch");
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(DistributedPipeline, AllRanksHearOfOptionsThatDiffer) {
  const Net net = make_net("mnist");
  const auto run_with = [&](const std::function<PipelineOptions(int)>& options, int stages) {
    return run_group(2, "shm", [&](ProcessGroup group) {
      std::vector<pipeline::StageModule> own(net.stages.begin(), net.stages.begin() + stages);
      DistributedPipeline(std::move(own), group, torch::kCPU, options(group.rank()));
    });
  };
  EXPECT_THAT(run_with([](int rank) { return PipelineOptions{.micro_batches = 2 + rank}; }, 1),
              Each(HasSubstr("have different tables")));
  EXPECT_THAT(run_with([](int) { return PipelineOptions{}; }, 2),
              Each(HasSubstr("the schedule 1f1b has 2 stages on 2 workers, got 4")));
  EXPECT_THAT(run_with([](int rank) { return PipelineOptions{.micro_batches = rank}; }, 1),
              Each(HasSubstr("rank 0: PipelineOptions: micro_batches must be at least 1")));
}

TEST(DistributedPipeline, EndsOnAllRanksWhereABatchIsNotAsLargeAsTheySay) {
  const Net net = make_net("mnist");  // eleven samples
  const auto step_with = [&](const torch::Tensor& x, const torch::Tensor& y) {
    return run_group(4, "shm", [&](ProcessGroup group) {
      DistributedPipeline pipe(stages_of(net, Schedule::k1F1B, group.rank(), 4), group,
                               torch::kCPU);
      pipe.step(net.criterion, x, y, 10);
    });
  };
  EXPECT_THAT(step_with(net.x, net.y.narrow(0, 0, 10)),
              Each(HasSubstr("x has shape [11, 1, 28, 28], expected 10 samples")));
  EXPECT_THAT(step_with(net.x.narrow(0, 0, 10), net.y),
              Each(HasSubstr("y has shape [11], expected 10 samples")));
}

TEST(DistributedPipeline, WritesTheLastStepOfAllRanksAsOneFile) {
  const Net net = make_net("mnist");
  const testing_support::TemporaryDirectory directory;
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    DistributedPipeline pipe(stages_of(net, Schedule::k1F1B, group.rank(), 4), group, torch::kCPU,
                             {.micro_batches = kRankMicroBatches});
    pipe.step(net.criterion, net.x, net.y);
    pipe.write_trace(directory / "trace.json");
    // With 1F1B, a worker holds one micro-batch for each worker from itself to the last one.
    if (pipe.peak_activations() != std::vector<int>{4 - group.rank()}) throw Error("held others");
  });
  EXPECT_EQ(errors, no_errors(4));
  const std::string text = testing_support::read_text(directory / "trace.json");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(text, AllOf(HasSubstr(str("\"rank ", rank)), HasSubstr(str("\"worker ", rank)),
                            HasSubstr(str(rank, "F3\"")), HasSubstr(str(rank, "B3\""))));
  }
}

TEST(DistributedPipeline, AllRanksHearThatThereIsNoTrace) {
  const Net net = make_net("mnist");
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    DistributedPipeline pipe(stages_of(net, Schedule::k1F1B, group.rank(), 4), group, torch::kCPU);
    pipe.write_trace("/dev/null/trace.json");
  });
  EXPECT_THAT(errors, Each(HasSubstr("/dev/null/trace.json")));
}

// The ranks share one clock, so that a trace shows when one waited for another.
TEST(PipelineTrace, IsInTheTimeOfTheClock) {
  pipeline::Timeline timeline;
  timeline.workers.resize(2);
  timeline.workers[1].push_back(
      {.action = {pipeline::Kind::kForward, 1, 2}, .begin = 0.5, .end = 0.75});
  const Clock::time_point began{std::chrono::seconds(2)};
  const std::vector<Span> spans = pipeline::trace_spans(timeline, began);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, "1F2");
  EXPECT_EQ(spans[0].track, "worker 1");
  EXPECT_EQ(spans[0].begin, began + std::chrono::milliseconds(500));
  EXPECT_EQ(spans[0].end, began + std::chrono::milliseconds(750));
}

// Each message is longer than the transport's ring. The rest is sent while the sender is inside a
// call.
TEST(DistributedPipeline, TakesMessagesOfAnyLength) {
  at::set_num_threads(1);
  constexpr int kParts = 3;
  const auto wide_net = [] {
    torch::manual_seed(8);
    return Net{{torch::nn::Linear(8, 1 << 16), torch::nn::Linear(1 << 16, 4)},
               torch::randn({12, 8}),  // four samples of 256 KiB in each part
               torch::randn({12, 4}),
               [](const torch::Tensor& output, const torch::Tensor& target) {
                 return torch::mse_loss(output, target);
               }};
  };
  const Net expected = wide_net(), net = wide_net();
  accumulate(expected, kParts);
  for (const Schedule schedule : {Schedule::kGPipe, Schedule::kZbH1}) {
    for (const auto& each : parameters_of(net)) each.mutable_grad() = torch::Tensor();
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      const auto rank = static_cast<std::size_t>(group.rank());
      DistributedPipeline pipe({net.stages[rank]}, group, torch::kCPU,
                               {.micro_batches = kParts, .schedule = schedule});
      pipe.step(net.criterion, net.x, net.y);
    });
    EXPECT_EQ(errors, no_errors(2));
    EXPECT_EQ(difference(net, expected), "") << schedule_name(schedule);
  }
}

// The caller's autocast has its cache of casts enabled. Micro-batches must not share the cached
// casts.
TEST(DistributedPipeline, UnderAutocastGivesTheBitsOfOneProcess) {
  at::set_num_threads(1);
  const Net expected = make_net("mnist");
  {
    const AutocastHere bfloat16(torch::kBFloat16);
    const pipeline::CastsPerMicroBatch casts;
    accumulate(expected, kRankMicroBatches);
  }
  for (const bool recompute : {false, true}) {
    const Net net = make_net("mnist");
    const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      DistributedPipeline pipe(stages_of(net, Schedule::kZbH1, group.rank(), 4), group, torch::kCPU,
                               {.micro_batches = kRankMicroBatches,
                                .schedule = Schedule::kZbH1,
                                .recompute = recompute});
      const AutocastHere bfloat16(torch::kBFloat16);
      pipe.step(net.criterion, net.x, net.y);
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(4));
    EXPECT_EQ(difference(net, expected), "") << recompute;
  }
}

// Only rank 0 has two stages with a shared weight, but rank 1 must report the error as well.
TEST(DistributedPipeline, RefusesToReduceTiedStagesOneByOne) {
  const Net net = make_net("tied");
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DistributedPipeline pipe(stages_of(net, Schedule::kZbV, group.rank(), 2), group, torch::kCPU,
                             {.micro_batches = kRankMicroBatches,
                              .schedule = Schedule::kZbV,
                              .reduce = [](int, const Tensors&) {}});
    pipe.step(net.criterion, net.x, net.y);
  });
  EXPECT_THAT(errors, Each(HasSubstr("do not set options.reduce")));
}

// Rank 0 must not wait for rank 1 until its deadline. A stage without parameters is never moved, so
// that only the device check notices that its device does not exist.
TEST(DistributedPipeline, EndsOnAllRanksWhereOneCannotMakeIt) {
  const auto run_with = [](const pipeline::StageModule& stage_of_last,
                           torch::Device device_of_last) {
    return run_group(2, "shm", [&](ProcessGroup group) {
      const bool last = group.rank() == 1;
      const auto linear =
          one_at_a_time([] { return std::make_shared<torch::nn::LinearImpl>(4, 4); });
      const pipeline::StageModule stage = last ? stage_of_last : pipeline::StageModule(linear);
      DistributedPipeline pipe({stage}, group, last ? device_of_last : torch::kCPU);
      pipe.step([](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); },
                torch::ones({8, 4}), torch::ones({8}));
    });
  };
  EXPECT_THAT(run_with(testing_support::Immovable(), torch::kCPU),
              Each(HasSubstr("there is no room on the device")));
  EXPECT_THAT(run_with(torch::nn::Identity(), torch::kXLA),
              Each(HasSubstr("DistributedPipeline: rank 1 cannot use the device xla")));
  EXPECT_THAT(run_with(torch::nn::Identity(), torch::Device(torch::kCUDA, 99)),
              Each(HasSubstr("DistributedPipeline: rank 1 cannot use the device cuda:99")));
}

// --- A rank that fails

constexpr auto kSumOfOutput = [](const torch::Tensor& output, const torch::Tensor&) {
  return output.sum();
};

// A linear layer that calls `before` at the start of each forward.
pipeline::StageModule linear_stage(std::function<void()> before) {
  const auto linear = one_at_a_time([] { return std::make_shared<torch::nn::LinearImpl>(4, 4); });
  return pipeline::StageModule(
      linear, [linear, before = std::move(before)](const Tensors& inputs) -> Tensors {
        before();
        return {linear->forward(inputs[0])};
      });
}

class DistributedPipelineFailures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DistributedPipelineFailures, testing::Values("shm", "gloo"));

// A stage that throws ends the step on all ranks with the text of the failed rank's error. It fails
// when rank 0 has nothing left to send and waits for gradients. No rank leaves before all ranks
// have their error.
TEST_P(DistributedPipelineFailures, EndTheStepOnAllRanks) {
  Moment failed;
  Survivors all(3);
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    int calls = 0;
    const auto stage = linear_stage([&] {
      if (group.rank() != 1 || ++calls != 5) return;
      failed.mark();
      throw DataError("the stage is broken");
    });
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 5});
    try {
      pipe.step(kSumOfOutput, torch::ones({10, 4}), torch::ones({10}));
    } catch (const Error& error) {
      const bool in_time = failed.seconds_ago() < 2;
      all.wait_for_all();
      throw Error(str(error.what(), in_time ? " in time" : " late"));
    }
  });
  EXPECT_THAT(errors[1], HasSubstr("worker 1 failed in stage 1 at 1F4"));
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the stage is broken"), HasSubstr(" in time"))));
}

struct PipelineDeath {
  const char* name;
  const char* backend;
  int victim;  // one of three ranks
};

void PrintTo(const PipelineDeath& death, std::ostream* out) { *out << death.name; }

class DistributedPipelineDeaths : public testing::TestWithParam<PipelineDeath> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DistributedPipelineDeaths,
                         testing::Values(PipelineDeath{"FirstOverShm", "shm", 0},
                                         PipelineDeath{"MiddleOverShm", "shm", 1},
                                         PipelineDeath{"FirstOverGloo", "gloo", 0},
                                         PipelineDeath{"LastOverGloo", "gloo", 2}),
                         [](const auto& info) { return info.param.name; });

TEST_P(DistributedPipelineDeaths, AreNamedByTheOthersWithinTwoSeconds) {
  const PipelineDeath death = GetParam();
  Moment killed;
  Survivors survivors(2);
  const auto errors = run_group_processes(3, death.backend, [&](ProcessGroup group) {
    int calls = 0;
    const auto stage = linear_stage([&] {
      if (group.rank() != death.victim || ++calls != 63) return;  // in the middle of a step
      killed.mark();
      raise(SIGKILL);
    });
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 6});
    try {
      for (;;) pipe.step(kSumOfOutput, torch::ones({12, 4}), torch::ones({12}));
    } catch (const CommError& error) {
      const bool in_time = killed.seconds_ago() < 2;
      survivors.wait_for_all();
      throw CommError(str(error.what(), in_time ? " in time" : " late"));
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    if (rank == death.victim) {
      EXPECT_EQ(error, "killed by signal 9");
    } else {
      EXPECT_THAT(error, AllOf(HasSubstr(str("worker ", rank, " failed in stage ", rank)),
                               HasSubstr("died"), HasSubstr(" in time")));
      // When rank 0 dies, the store dies with it. Rank 2 then knows only that rank 1 has closed its
      // connection, and its error mentions that the store is gone.
      EXPECT_THAT(error, AnyOf(HasSubstr(str("rank ", death.victim)),
                               HasSubstr(death.victim == 0 ? "the store, which would know, is gone"
                                                           : "the victim's number")));
    }
  }
}

}  // namespace
}  // namespace lockstep
