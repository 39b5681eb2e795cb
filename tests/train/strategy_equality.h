// Compares every strategy with one process that computes the same parts of the same batch.
// Everything is in double: with few samples per normalisation, float32 deviates by more than 1e-5
// within five steps.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/models/resnet_stages.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/micro_batches.h>
#include <lockstep/parallel/pipeline/saved_buffers.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::testing_support {

/// A task and the batch that all its steps use.
struct EqualityCase {
  std::unique_ptr<ClassificationTask> task;
  Batch batch;
};

/// A task whose loss keeps the dtype of the output.
class DoubleTask final : public ClassificationTask {
 public:
  using ClassificationTask::ClassificationTask;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    return at::cross_entropy_loss(output, labels);
  }
};

/// The convolutional net of the MNIST example without dropout, as a Sequential that can be cut.
inline EqualityCase mnist_case() {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(1, 10, 5), nn::MaxPool2d(2), nn::ReLU(), nn::Conv2d(10, 20, 5),
                     nn::MaxPool2d(2), nn::ReLU(), nn::Flatten(), nn::Linear(320, 50), nn::ReLU(),
                     nn::Linear(50, 10));
  net->to(torch::kFloat64);
  const auto cut = [net](int stages) {
    const std::vector<int> two = {6, 4}, four = {3, 3, 3, 1};
    return pipeline::stage_modules(split(net, stages == 2 ? two : four));
  };
  return {std::make_unique<DoubleTask>(net, ClassificationLoss::kCrossEntropy, cut),
          {.images = torch::randn({12, 1, 28, 28}, torch::kFloat64),
           .labels = torch::randint(10, {12}, torch::kInt64),
           .size = 12}};
}

/// A decoder whose weight is another stage's embedding.
struct TiedDecoderImpl : torch::nn::Module {
  explicit TiedDecoderImpl(const torch::Tensor& shared)
      : weight(register_parameter("decoder", shared)) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedDecoder);

/// A net whose embedding and decoder share one weight. They are in the first and the last of two or
/// four stages.
inline EqualityCase tied_case() {
  TiedNet net;
  net->to(torch::kFloat64);
  const auto cut = [net](int stages) -> std::vector<pipeline::StageModule> {
    if (stages != 2 && stages != 4) throw ConfigError("the tied net has two or four stages");
    const torch::nn::Embedding embedding = net->embedding;
    const pipeline::StageModule first(embedding.ptr(),
                                      [impl = embedding.ptr()](const Tensors& in) -> Tensors {
                                        return {impl->forward(in[0]).mean(1)};
                                      });
    if (stages == 4) return {first, net->hidden, torch::nn::Tanh(), TiedDecoder(net->decoder)};
    torch::nn::Sequential rest;
    rest->push_back(net->hidden);
    rest->push_back(torch::nn::Tanh());
    rest->push_back(TiedDecoder(net->decoder));
    return {first, rest};
  };
  return {std::make_unique<DoubleTask>(net, ClassificationLoss::kCrossEntropy, cut),
          {.images = torch::randint(11, {12, 5}, torch::kInt64),
           .labels = torch::randint(11, {12}, torch::kInt64),
           .size = 12}};
}

inline EqualityCase resnet_case(ResNet net, std::int64_t image_size) {
  net->to(torch::kFloat64);
  const auto cut = [net](int stages) {
    return pipeline::stage_modules(resnet_stages(net, resnet_cuts(net, stages)));
  };
  return {std::make_unique<DoubleTask>(net, ClassificationLoss::kCrossEntropy, cut),
          {.images = torch::randn({8, 3, image_size, image_size}, torch::kFloat64),
           .labels = torch::randint(10, {8}, torch::kInt64),
           .size = 8}};
}

/// Makes the case "mnist", "tied", "resnet18" or "resnet50", always with the same weights and data.
/// Rank threads share one generator, and therefore take turns.
inline EqualityCase make_equality_case(const std::string& name) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  torch::manual_seed(5);
  if (name == "mnist") return mnist_case();
  if (name == "tied") return tied_case();
  if (name == "resnet18") return resnet_case(resnet18(ResNetStem::kCifar, 10), 16);
  if (name == "resnet50") return resnet_case(resnet50(ResNetStem::kImageNet, 10), 64);
  throw Error("no net " + name);
}

/// A way to train and the division of its batch: each replica gets a share with the relative size
/// in `shares`, and computes it in `parts` micro-batches. Batch normalisation computes its
/// statistics per micro-batch. The running statistics are those of the first share.
struct EqualityWay {
  std::string name;
  std::string strategy;
  int ranks = 1;
  std::string backend = "shm";
  StrategyOptions options{};
  std::vector<int> shares = {1};
  int parts = 1;
  bool has_whole_gradients = true;  ///< in the module, on the ranks with the parameter
  bool every_rank_trains = true;    ///< false if a rank has no parameter
};

using NamedValues = std::map<std::string, torch::Tensor>;

struct Lesson {
  NamedValues gradients{};  ///< after the first step
  NamedValues state{};      ///< after the last step: parameters and buffers
};

/// Whether the tests cover every way, which is slow: `make test-exhaustive`.
inline bool tests_every_way() { return environment_flag("LOCKSTEP_EXHAUSTIVE"); }

/// The number of steps. The steps of ResNets are slow, and from the third on, the momentum contains
/// an earlier momentum.
inline int equality_steps(const std::string& net) {
  return net.starts_with("resnet") && !tests_every_way() ? 3 : 5;
}

inline constexpr SgdOptions kEqualitySgd = {.lr = 0.01, .momentum = 0.9};

inline NamedValues gradients_in(const torch::nn::Module& module) {
  NamedValues gradients;
  for (const auto& item : module.named_parameters()) {
    if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
  }
  return gradients;
}

inline NamedValues state_in(const torch::nn::Module& module) {
  NamedValues state;
  for (const auto& item : module.named_parameters()) {
    state[item.key()] = item.value().detach().clone();
  }
  for (const auto& item : module.named_buffers()) state[item.key()] = item.value().clone();
  return state;
}

inline Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  return {.images = batch.images.narrow(0, first, count),
          .labels = batch.labels.narrow(0, first, count),
          .size = count};
}

/// Runs forward and backward of one part after another. The first share comes last, so that its
/// running statistics remain.
inline void accumulate_shares(DoubleTask& task, const Batch& batch, const std::vector<int>& shares,
                              int parts) {
  const pipeline::SavedBuffers before(task.module());
  const int whole = std::accumulate(shares.begin(), shares.end(), 0);
  std::int64_t end = batch.size;
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    before.restore();
    const std::int64_t size = batch.size * *share / whole;
    const Batch own = rows_of(batch, end - size, size);
    end -= size;
    std::int64_t first = 0;
    for (const std::int64_t count : pipeline::part_sizes(size, parts)) {
      const double weight = static_cast<double>(count) / static_cast<double>(batch.size);
      (task.training_step(rows_of(own, first, count)) * weight).backward();
      first += count;
    }
  }
}

inline Lesson learn_alone(const std::string& name, const std::vector<int>& shares, int parts) {
  const EqualityCase own = make_equality_case(name);
  auto& task = dynamic_cast<DoubleTask&>(*own.task);
  task.module().train();
  Optimizer optimizer(task.module(), kEqualitySgd);
  Lesson lesson;
  const int steps = equality_steps(name);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    accumulate_shares(task, own.batch, shares, parts);
    if (step == 0) lesson.gradients = gradients_in(task.module());
    optimizer.step();
  }
  lesson.state = state_in(task.module());
  return lesson;
}

/// Collective. Returns the gradients that this rank has; the state is complete on rank 0.
inline Lesson learn_with(const std::string& name, const EqualityWay& way,
                         const ProcessGroup& group) {
  const EqualityCase own = make_equality_case(name);
  const auto strategy = make_strategy(way.strategy, group, way.options);
  torch::nn::Module& module = own.task->module();
  strategy->place(module, torch::kCPU);
  strategy->attach(*own.task, {});
  const auto optimizer = strategy->make_optimizer(kEqualitySgd);
  module.train();
  strategy->follow_modes();
  const DataShare share = strategy->data_share();
  const std::int64_t size = own.batch.size / share.size;
  const Batch batch = rows_of(own.batch, share.rank * size, size);
  PhaseSeconds phases;
  Lesson lesson;
  const int steps = equality_steps(name);
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    strategy->step(batch, {}, phases);
    if (step == 0) lesson.gradients = gradients_in(module);
    optimizer->step();
  }
  strategy->gather_module();
  lesson.state = state_in(module);
  strategy->group().barrier();
  return lesson;
}

/// Throws an Error that names the first value whose relative deviation exceeds 1e-5.
inline void require_close(const NamedValues& got, const NamedValues& expected,
                          const std::string& what) {
  for (const auto& [name, value] : got) {
    const auto found = expected.find(name);
    if (found == expected.end()) throw Error(what + " of " + name + " is not expected");
    const double off = difference(value, found->second);
    if (!(off <= 1e-5)) throw Error(lockstep::str(what, " of ", name, " is off by ", off));
  }
}

/// Caches what one process learns with the shares and parts of a way.
class LearntAlone {
 public:
  explicit LearntAlone(std::string net) : net_(std::move(net)) {}

  const Lesson& in(const std::vector<int>& shares, int parts) {
    const auto found = lessons_.find({shares, parts});
    if (found != lessons_.end()) return found->second;
    return lessons_.emplace(std::pair(shares, parts), learn_alone(net_, shares, parts))
        .first->second;
  }
  const std::string& net() const { return net_; }

 private:
  std::string net_;
  std::map<std::pair<std::vector<int>, int>, Lesson> lessons_;
};

inline void expect_equal_lessons(LearntAlone& alone, const EqualityWay& way) {
  at::set_num_threads(1);
  const Lesson& expected = alone.in(way.shares, way.parts);
  const auto learn = [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    const Lesson lesson = learn_with(alone.net(), way, group);
    if (way.has_whole_gradients) {
      const bool needs_some = way.every_rank_trains || group.rank() == 0;
      if (needs_some && lesson.gradients.empty()) throw Error("there are no gradients");
      require_close(lesson.gradients, expected.gradients, "the gradient");
    }
    if (group.rank() != 0) return;
    if (lesson.state.size() != expected.state.size()) throw Error("rank 0 has not the whole state");
    require_close(lesson.state, expected.state, "the value");
  };
  const std::string what = alone.net() + ", " + way.name;
  if (way.ranks == 1) {
    EXPECT_NO_THROW(learn(train::group_of_one())) << what;
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, learn), no_errors(way.ranks)) << what;
  }
}

// --- Ways to train -------------------------------------------------------------------------------

inline constexpr Schedule kEverySchedule[] = {
    Schedule::kGPipe, Schedule::k1F1B, Schedule::kInterleaved, Schedule::kZbH1, Schedule::kZbV};

/// `chosen`, or all schedules if every way is tested.
inline std::vector<Schedule> schedules_or_all(std::vector<Schedule> chosen) {
  if (!tests_every_way()) return chosen;
  return {std::begin(kEverySchedule), std::end(kEverySchedule)};
}

/// Whether the schedule assigns two stages to each worker.
inline bool has_two_stages(Schedule schedule) {
  return schedule == Schedule::kInterleaved || schedule == Schedule::kZbV;
}

inline std::vector<EqualityWay> data_parallel_ways() {
  const std::vector<torch::Device> two(2, torch::kCPU);
  return {
      {.name = "dp, gathered",
       .strategy = "dp",
       .options = {.devices = two, .dp_loss = DpLoss::kGathered},
       .shares = {1, 1}},
      {.name = "dp, on each",
       .strategy = "dp",
       .options = {.devices = two, .dp_loss = DpLoss::kOnEach},
       .shares = {1, 1}},
      {.name = "dp by weights, gathered",
       .strategy = "dp",
       .options = {.devices = two, .device_weights = {3, 1}, .dp_loss = DpLoss::kGathered},
       .shares = {3, 1}},
      {.name = "dp by weights, on each",
       .strategy = "dp",
       .options = {.devices = two, .device_weights = {3, 1}, .dp_loss = DpLoss::kOnEach},
       .shares = {3, 1}},
      {.name = "ddp", .strategy = "ddp", .ranks = 2, .shares = {1, 1}},
      {.name = "ddp over gloo", .strategy = "ddp", .ranks = 2, .backend = "gloo", .shares = {1, 1}},
      {.name = "zero1",
       .strategy = "zero1",
       .ranks = 2,
       .shares = {1, 1},
       .has_whole_gradients = false}};
}

/// Four stages on threads of one process.
inline EqualityWay thread_way(Schedule schedule, int parts) {
  return {.name = lockstep::str("threads, ", schedule_name(schedule)),
          .strategy = "pipeline",
          .options = {.stages = 4, .micro_batches = parts, .schedule = schedule},
          .parts = parts};
}

/// Two ranks, with one or two stages each.
inline EqualityWay rank_way(Schedule schedule, int parts) {
  return {.name = lockstep::str("ranks, ", schedule_name(schedule)),
          .strategy = "pipeline",
          .ranks = 2,
          .options = {.stages = has_two_stages(schedule) ? 4 : 2,
                      .micro_batches = parts,
                      .schedule = schedule},
          .parts = parts};
}

/// Four ranks with one stage each. The two in the middle have no copy of the tied weight, and the
/// third has no parameter at all.
inline EqualityWay four_ranks_way(const std::string& backend, int parts) {
  return {.name = lockstep::str("four ranks over ", backend),
          .strategy = "pipeline",
          .ranks = 4,
          .backend = backend,
          .options = {.stages = 4, .micro_batches = parts},
          .parts = parts,
          .every_rank_trains = false};
}

/// Two pipelines of two ranks.
inline EqualityWay hybrid_way(Schedule schedule, int parts, bool shards = false) {
  return {.name = lockstep::str("hybrid, ", schedule_name(schedule), shards ? ", sharded" : ""),
          .strategy = "hybrid",
          .ranks = 4,
          .options = {.stages = has_two_stages(schedule) ? 4 : 2,
                      .micro_batches = parts,
                      .schedule = schedule,
                      .shard_optimizer = shards},
          .shares = {1, 1},
          .parts = parts,
          .has_whole_gradients = !shards};
}

/// `way` with recomputed forwards.
inline EqualityWay recomputing(EqualityWay way) {
  way.name += ", recompute";
  way.options.recompute = true;
  return way;
}

}  // namespace lockstep::testing_support
