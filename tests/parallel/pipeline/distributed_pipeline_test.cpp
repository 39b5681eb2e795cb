// DistributedPipeline with ranks as threads against one process, and with a rank that dies.
#include <lockstep/parallel/pipeline/distributed_pipeline.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <csignal>
#include <mutex>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::accumulate;
using testing_support::difference;
using testing_support::make_net;
using testing_support::Net;
using testing_support::no_errors;
using testing_support::parameters_of;
using testing_support::run_group;
using testing_support::run_group_processes;

constexpr int kRankMicroBatches = 4;

// What the nets are made with is the process's, which the ranks of a test share.
template <class Function>
auto one_at_a_time(const Function& function) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  return function();
}

// The stages that rank `rank` of `ranks` has: all four nets have four stages.
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
  // The ranks share one net, of which each moves its stages.
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

// The last batch of an epoch is often a small one.
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
              Each(HasSubstr("rank 0: Pipeline: micro_batches must be at least 1")));
}

// A stage that throws ends the step on all ranks, with the words of the one that failed.
TEST(DistributedPipeline, EndsOnAllRanksWhenAStageThrows) {
  const Clock::time_point start = Clock::now();
  const auto errors = run_group(3, "shm", [&](ProcessGroup group) {
    auto linear = one_at_a_time([] { return std::make_shared<torch::nn::LinearImpl>(4, 4); });
    int calls = 0;
    const pipeline::StageModule stage(linear, [&, linear](const Tensors& inputs) -> Tensors {
      if (group.rank() == 1 && ++calls == 3) throw DataError("the stage is broken");
      return {linear->forward(inputs[0])};
    });
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 5});
    const auto loss = [](const torch::Tensor& output, const torch::Tensor&) {
      return output.sum();
    };
    pipe.step(loss, torch::ones({10, 4}), torch::ones({10}));
  });
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_THAT(errors[1], AllOf(HasSubstr("worker 1 failed in stage 1 at 1F2"),
                               HasSubstr("the stage is broken")));
  EXPECT_THAT(errors[0], HasSubstr("the stage is broken"));
  EXPECT_THAT(errors[2], HasSubstr("the stage is broken"));
}

TEST(DistributedPipelineDeath, NamesTheRankThatDied) {
  const auto errors = run_group_processes(2, "shm", [](ProcessGroup group) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(4, 4);
    int calls = 0;
    const pipeline::StageModule stage(linear, [&, linear](const Tensors& inputs) -> Tensors {
      if (group.rank() == 1 && ++calls == 3) raise(SIGKILL);
      return {linear->forward(inputs[0])};
    });
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 6});
    const auto loss = [](const torch::Tensor& output, const torch::Tensor&) {
      return output.sum();
    };
    const Clock::time_point start = Clock::now();
    try {
      pipe.step(loss, torch::ones({12, 4}), torch::ones({12}));
    } catch (const CommError& error) {
      if (seconds_since(start) > 2) throw Error("it took too long");
      throw;
    }
  });
  EXPECT_THAT(errors[1], HasSubstr("killed by signal 9"));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("worker 0 failed in stage 0"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace lockstep
