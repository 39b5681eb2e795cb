#include <lockstep/parallel/join.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;

// For each rank, the number of samples in each of its batches.
using Batches = std::vector<std::vector<std::int64_t>>;

struct JoinNetImpl : torch::nn::Module {
  JoinNetImpl() {
    const torch::NoGradGuard no_grad;
    linear->weight.fill_(0.5);
    linear->bias.fill_(0.25);
  }
  torch::Tensor forward(torch::Tensor x) { return norm(linear(x)); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 2));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
};
TORCH_MODULE(JoinNet);

torch::Tensor batch_of(int rank, std::size_t step, std::int64_t samples) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank) * 100 + step);
  return torch::randn({samples, 3}, generator, torch::kFloat64);
}

struct JoinCase {
  const char* name;
  const char* backend;
  JoinMode mode;
  Batches batches;
  DdpOptions options;
  std::size_t steps;  // taken by every rank
  std::string report;
};

void PrintTo(const JoinCase& c, std::ostream* out) { *out << c.name << ' ' << c.backend; }

const Batches kUneven = {{4, 4}, {4, 4, 4, 2}, {4, 4, 4}};
const char* const kWeightedReport =
    "rank 0 had 2 batches, rank 2 had 3 batches, others had up to 4; they took part in the rest "
    "with gradients of zero";

class JoinTest : public testing::TestWithParam<JoinCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, JoinTest,
    testing::Values(
        JoinCase{"weighted", "shm", JoinMode::kWeighted, kUneven, {}, 4, kWeightedReport},
        JoinCase{"weighted",
                 "gloo",
                 JoinMode::kWeighted,
                 kUneven,
                 {.bucket_cap_mb = 1e-5},
                 4,
                 kWeightedReport},
        JoinCase{"weighted_unused",
                 "shm",
                 JoinMode::kWeighted,
                 kUneven,
                 {.find_unused_parameters = true},
                 4,
                 kWeightedReport},
        JoinCase{"weighted_static",
                 "shm",
                 JoinMode::kWeighted,
                 kUneven,
                 {.static_graph = true},
                 4,
                 kWeightedReport},
        JoinCase{"weighted_none_at_all",
                 "shm",
                 JoinMode::kWeighted,
                 {{}, {4, 4}},
                 {},
                 2,
                 "rank 0 had 0 batches, others had up to 2; they took part in the rest with "
                 "gradients of zero"},
        JoinCase{"static_none_at_all",
                 "shm",
                 JoinMode::kWeighted,
                 {{}, {4, 4}},
                 {.static_graph = true},
                 2,
                 "rank 0 had 0 batches, others had up to 2; they took part in the rest with "
                 "gradients of zero"},
        JoinCase{"shortest",
                 "shm",
                 JoinMode::kShortest,
                 kUneven,
                 {},
                 2,
                 "rank 0 had 2 batches, others had more; all ranks stopped after 2 steps"},
        JoinCase{"even", "shm", JoinMode::kShortest, {{4, 4}, {4, 4}}, {}, 2, ""},
        JoinCase{"alone", "shm", JoinMode::kWeighted, {{4, 3}}, {}, 2, ""}));

// The loss is linear in the samples, except for the normalisation, which is local to each rank.
double loss_scale(std::size_t step) { return 1.0 + static_cast<double>(step); }

torch::Tensor loss_of(const torch::Tensor& output, std::size_t step) {
  return output.square().mul(torch::arange(1, 3)).sum(1).mean() * loss_scale(step);
}

TEST_P(JoinTest, EndsTogetherWithEqualReplicas) {
  const JoinCase& c = GetParam();
  const int size = static_cast<int>(c.batches.size());
  const auto samples_of = [&](int rank, std::size_t step) {
    const auto& own = c.batches[static_cast<std::size_t>(rank)];
    return step < own.size() ? own[step] : 0;
  };
  // One process computes the mean over all samples of each step.
  std::vector<JoinNet> replicas(static_cast<std::size_t>(size));
  JoinNet oracle;
  oracle->to(torch::kFloat64);
  torch::optim::SGD expected(oracle->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::size_t step = 0; step < c.steps; ++step) {
    expected.zero_grad();
    std::int64_t total = 0;
    torch::Tensor loss = torch::zeros({}, torch::kFloat64);
    for (int rank = 0; rank < size; ++rank) {
      const auto samples = samples_of(rank, step);
      if (samples == 0) continue;
      total += samples;
      loss = loss + loss_of(oracle->forward(batch_of(rank, step, samples)), step) * samples;
    }
    (loss / total).backward();
    expected.step();
  }

  const auto errors = run_group(size, c.backend, [&](ProcessGroup group) {
    JoinNet net;
    net->to(torch::kFloat64);
    DistributedDataParallel ddp(net, group, c.options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Join join(ddp.core(), c.mode);
    std::size_t step = 0;
    while (join.next(samples_of(group.rank(), step))) {
      optimizer.zero_grad();
      join.backward([&] {
        return loss_of(ddp.forward(batch_of(group.rank(), step, samples_of(group.rank(), step))),
                       step);
      });
      optimizer.step();
      ++step;
    }
    if (step != c.steps) throw Error(lockstep::str("ended after ", step, " steps"));
    if (join.report() != c.report) throw Error("report: " + join.report());
    const auto wanted = oracle->named_parameters();
    for (const auto& item : net->named_parameters()) {
      auto other = item.value().detach().clone();
      group.broadcast(other, size - 1);
      if (!torch::equal(other, item.value())) throw Error("replicas differ in " + item.key());
      if (!torch::allclose(item.value(), wanted[item.key()], 1e-9, 1e-9))
        throw Error(item.key() + " differs");
    }
    // All ranks have the buffers of a rank that stayed to the end.
    if (c.mode == JoinMode::kWeighted) {
      auto buffers = net->norm->running_mean.clone();
      group.broadcast(buffers, 0);
      if (!torch::equal(buffers, net->norm->running_mean)) throw Error("buffers");
      if (net->norm->num_batches_tracked.item<std::int64_t>() !=
          static_cast<std::int64_t>(c.steps)) {
        throw Error("counter");
      }
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(size));
}

// Rank 1 provided the buffers while it was the only rank with batches left.
TEST(Join, BuffersAreRankZerosAgainAfterwards) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    JoinNet net;
    DistributedDataParallel ddp(net, group);
    Join join(ddp.core(), JoinMode::kWeighted);
    for (int step = 0; join.next(step < 1 + group.rank() ? 4 : 0); ++step) {
      join.backward([&] { return ddp.forward(torch::randn({4, 3})).sum(); });
    }
    net->norm->running_mean.fill_(group.rank());
    ddp.core().broadcast_buffers();
    if (net->norm->running_mean.any().item<bool>()) throw Error("not those of rank 0");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(JoinErrors, SaysWhatCannotBe) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    JoinNet net;
    DistributedDataParallel ddp(net, group, {.sync_batch_norm = true});
    EXPECT_EQ(
        testing_support::message_of<ConfigError>([&] { Join(ddp.core(), JoinMode::kWeighted); }),
        "Join: with sync_batch_norm a rank without a batch can't take part in the others' "
        "forward; use JoinMode::kShortest");
    Join join(ddp.core(), JoinMode::kShortest);
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { join.next(-1); }),
              "Join: a batch has -1 samples");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(Join, HasNothingToReportBeforeAndAfterEqualPasses) {
  for (const JoinMode mode : {JoinMode::kShortest, JoinMode::kWeighted}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      JoinNet net;
      DistributedDataParallel ddp(net, group);
      Join join(ddp.core(), mode);
      EXPECT_EQ(join.report(), "") << "before the first step";
      EXPECT_EQ(join.weight(), 1);
      EXPECT_EQ(join.batches(), (std::vector<std::int64_t>{0, 0}));
      for (int step = 0; join.next(step < 2 ? 4 : 0); ++step) {
        EXPECT_EQ(join.report(), "") << "in step " << step;
        join.backward([&] { return ddp.forward(torch::randn({4, 3})).sum(); });
      }
      EXPECT_EQ(join.report(), "");
      EXPECT_EQ(join.batches(), (std::vector<std::int64_t>{2, 2}));
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

TEST(JoinErrors, TheShortRankIsLogged) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    JoinNet net;
    DistributedDataParallel ddp(net, group);
    Join join(ddp.core(), JoinMode::kShortest);
    if (join.next(group.rank() == 0 ? 4 : 0)) throw Error("goes on");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  const std::vector<std::string> told = log.lines();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0],
              HasSubstr("rank 1 had 0 batches, others had more; all ranks stopped after 0 steps"));
}

}  // namespace
}  // namespace lockstep
