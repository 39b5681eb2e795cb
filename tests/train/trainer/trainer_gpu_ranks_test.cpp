// The Trainer over NCCL with 1 to 8 ranks: each strategy, runs that are resumed, and steps recorded
// in a CUDA graph with their all-reduce, compared with a loop of plain LibTorch in one process on
// the CPU.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/train/trainer.h>
#include <tests/support/devices/gpu_ranks.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing_support::TemporaryDirectory;

// Divisible among eight ranks, and the share of a pipeline into micro-batches.
constexpr std::int64_t kBatchOfGpus = 40;
constexpr std::int64_t kBatchesOfGpus = 2;  // full batches in an epoch
constexpr double kRateOfGpus = 0.05, kMomentumOfGpus = 0.9;

TrainerOptions options_on_gpus(std::int64_t epochs) {
  TrainerOptions run = options(epochs);
  run.optimizer = SgdOptions{.lr = kRateOfGpus, .momentum = kMomentumOfGpus};
  run.schedule = {};
  run.limit_train_batches = kBatchesOfGpus;
  run.limit_val_batches = 0;
  run.info.global_batch = kBatchOfGpus;
  return run;
}

// The weights after training in one process, without the Trainer.
StateDict trained_by_libtorch(std::int64_t epochs) {
  const torch::nn::Sequential net = make_staged_net();
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(kRateOfGpus).momentum(kMomentumOfGpus));
  Loader loader(train_images(), DistributedSampler(kImages), kNormalize,
                {.batch_size = kBatchOfGpus});
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    loader.set_epoch(epoch);
    for (std::int64_t step = 0; step < kBatchesOfGpus; ++step) {
      Batch batch;
      LOCKSTEP_CHECK(loader.next(batch), "the loader has too few batches");
      optimizer.zero_grad();
      const torch::Tensor output = torch::nn::Sequential(net)->forward(batch.images);
      torch::nn::functional::cross_entropy(output, batch.labels).backward();
      optimizer.step();
    }
  }
  return state_dict(*net);
}

// Trains this rank's part of the net on its GPU. Returns the net, which is complete on rank 0.
torch::nn::Sequential trained_on_gpus(TrainerOptions run, const ProcessGroup& group,
                                      torch::Device gpu, const std::string& strategy_name,
                                      const StrategyOptions& strategy_options = {},
                                      LoaderEngineKind engine = LoaderEngineKind::kNative) {
  run.device = gpu;
  const torch::nn::Sequential net = make_staged_net();
  ClassificationTask task = make_staged_task(net);
  std::unique_ptr<Strategy> strategy = make_strategy(strategy_name, group, strategy_options);
  const DataShare share = strategy->data_share();
  Loader loader(
      train_images(), DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
      kNormalize, {.batch_size = kBatchOfGpus / share.size, .engine = engine, .device = gpu});
  Trainer(run, std::move(strategy)).fit(task, loader);
  return net;
}

void require_trained(const ProcessGroup& group, const torch::nn::Sequential& net,
                     const StateDict& expected) {
  if (group.rank() != 0) return;
  const StateDict got = state_dict(*net);
  LOCKSTEP_CHECK(got.size() == expected.size(), "the state has ", got.size(), " tensors");
  for (std::size_t i = 0; i < got.size(); ++i) {
    LOCKSTEP_CHECK(torch::allclose(got[i].second.cpu(), expected[i].second, 1e-3, 1e-5),
                   got[i].first, " differs by ",
                   (got[i].second.cpu() - expected[i].second).abs().max().item<double>());
  }
}

struct WayOnGpus {
  const char* name;
  const char* strategy;
  StrategyOptions options{};
  std::vector<int> ranks = {1, 2, 4, 8};  // the numbers of ranks with which it is possible
};

std::vector<WayOnGpus> ways_of_ranks(int ranks) {
  const std::vector<WayOnGpus> all = {
      {"ddp", "ddp"},
      {"zero1", "zero1"},
      {"pipeline", "pipeline", {.stages = 2, .micro_batches = 2}, {1, 2}},
      {"pipeline of four", "pipeline", {.stages = 4, .micro_batches = 2}, {4}},
      {"zbv",
       "pipeline",
       {.stages = 4, .micro_batches = 2, .schedule = Schedule::kZbV, .recompute = true},
       {1, 2}},
      {"hybrid", "hybrid", {.stages = 2, .micro_batches = 2}, {4, 8}},
      {"sharded hybrid",
       "hybrid",
       {.stages = 4, .micro_batches = 2, .schedule = Schedule::kZbV, .shard_optimizer = true},
       {4, 8}}};
  std::vector<WayOnGpus> possible;
  for (const WayOnGpus& way : all) {
    for (const int each : way.ranks) {
      if (each == ranks) possible.push_back(way);
    }
  }
  return possible;
}

// Calls `train` for each strategy, and names the one that fails.
void for_each_way(const ProcessGroup& group, const std::function<void(const WayOnGpus&)>& train) {
  for (const WayOnGpus& way : ways_of_ranks(group.size())) {
    try {
      train(way);
    } catch (const std::exception& error) {
      throw Error(str(way.name, ": ", error.what()));
    }
  }
}

class TrainerOnGpus : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainerOnGpus, testing_support::kOneToEightRanks,
                         testing_support::name_of_ranks);

// One run is uninterrupted. Another one ends within its second epoch and is resumed from rank 0's
// checkpoint.
TEST_P(TrainerOnGpus, TrainsAndGoesOnWithEveryStrategyAsPlainLibTorch) {
  const TemporaryDirectory directory;
  expect_success([&](const ProcessGroup& group, torch::Device gpu) {
    constexpr std::int64_t kEpochs = 2;
    const StateDict expected = trained_by_libtorch(kEpochs);
    for_each_way(group, [&](const WayOnGpus& way) {
      TrainerOptions run = options_on_gpus(kEpochs);
      const auto train = [&] {
        return trained_on_gpus(run, group, gpu, way.strategy, way.options);
      };
      require_trained(group, train(), expected);
      run.checkpoints.directory = directory / way.name;
      run.max_steps = kBatchesOfGpus + 1;
      train();
      run.max_steps.reset();
      run.resume = true;
      require_trained(group, train(), expected);
    });
  });
}

// The first steps run unrecorded, the others as replays of one graph.
TEST_P(TrainerOnGpus, RecordsAStepWithItsAllReduceInAGraph) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    constexpr std::int64_t kEpochs = 5;
    TrainerOptions run = options_on_gpus(kEpochs);
    run.cuda_graph = true;
    require_trained(group, trained_on_gpus(run, group, gpu, "ddp", {}, LoaderEngineKind::kCuda),
                    trained_by_libtorch(kEpochs));
  });
}

}  // namespace
}  // namespace lockstep::train
