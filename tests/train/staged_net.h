// A net that can be cut into stages, and Trainer runs with it.
#pragma once

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {

struct StagedNetOptions {
  bool dropout = false;
  bool norm = false;
  bool frozen_begin = false;  ///< only the last two of the four blocks are trained
};

/// Four blocks of layers, each depending on the previous one, always with the same weights.
inline torch::nn::Sequential make_staged_net(const StagedNetOptions& net_options = {}) {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Flatten(), nn::Linear(28 * 28, 32), nn::ReLU());
  net->push_back(nn::Linear(32, 24));
  if (net_options.norm) net->push_back(nn::BatchNorm1d(24));
  net->push_back(nn::Tanh());
  if (net_options.dropout) net->push_back(nn::Dropout());
  net->push_back(nn::Linear(24, 16));
  net->push_back(nn::Tanh());
  net->push_back(nn::Linear(16, 10));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    const auto size = static_cast<double>(parameter.numel());
    parameter.copy_((torch::arange(parameter.numel()).mul(0.7).sin() /
                     std::sqrt(size / static_cast<double>(parameter.size(0)) + 1.0))
                        .view_as(parameter));
  }
  for (const auto& parameter : net->parameters()) {
    // Only the first blocks have layers with 32 or 24 outputs.
    if (net_options.frozen_begin && parameter.size(0) >= 24) parameter.set_requires_grad(false);
  }
  return net;
}

/// Cuts the net into one, two or four stages of whole blocks.
inline std::vector<pipeline::StageModule> cut_staged_net(const torch::nn::Sequential& net,
                                                         const StagedNetOptions& net_options,
                                                         int stages) {
  std::vector<int> blocks = {3, 2 + (net_options.norm ? 1 : 0) + (net_options.dropout ? 1 : 0), 2,
                             1};
  if (stages == 2) blocks = {blocks[0] + blocks[1], blocks[2] + blocks[3]};
  if (stages == 1) blocks = {std::accumulate(blocks.begin(), blocks.end(), 0)};
  if (static_cast<int>(blocks.size()) != stages) throw ConfigError("no such number of stages");
  return pipeline::stage_modules(split(net, blocks));
}

inline ClassificationTask make_staged_task(const torch::nn::Sequential& net,
                                           const StagedNetOptions& net_options = {}) {
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy, [net, net_options](int stages) {
    return cut_staged_net(net, net_options, stages);
  });
}

struct StagedRun {
  std::string strategy = "single";
  StrategyOptions options{};
  StagedNetOptions net{};
  std::int64_t global_batch = kGlobalBatch;
};

/// Trains the task and evaluates it on the test images.
inline RunReport train_staged(const TrainerOptions& trainer_options, const ProcessGroup& group,
                              const StagedRun& run, Task& task) {
  std::unique_ptr<Strategy> strategy = make_strategy(run.strategy, group, run.options);
  const DataShare share = strategy->data_share();
  Loader loader(train_images(),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = run.global_batch / share.size});
  return Trainer(trainer_options, std::move(strategy)).fit(task, loader, [&] {
    return std::make_unique<Loader>(test_images(),
                                    EvaluationSampler(test_images().size(), share.rank, share.size),
                                    kNormalize, LoaderOptions{.batch_size = 8});
  });
}

/// Trains the net and evaluates it on the test images.
inline RunReport train_staged(const TrainerOptions& trainer_options, const ProcessGroup& group,
                              const StagedRun& run) {
  ClassificationTask task = make_staged_task(make_staged_net(run.net), run.net);
  return train_staged(trainer_options, group, run, task);
}

/// The whole net of a checkpoint, followed by its optimizer's state. Loading fails unless both have
/// the names that a single process uses.
inline StateDict saved_state(const std::filesystem::path& checkpoint,
                             const OptimizerOptions& optimizer_options,
                             const StagedNetOptions& net_options = {}) {
  torch::nn::Sequential net = make_staged_net(net_options);
  const Optimizer optimizer(*net, optimizer_options);
  StateDict training = optimizer.state();
  load_checkpoint(checkpoint, *net, training, "digits");
  StateDict state = state_dict(*net);
  state.insert(state.end(), training.begin(), training.end());
  return state;
}

}  // namespace lockstep::train
