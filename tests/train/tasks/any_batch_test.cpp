// Tasks for batches of any structure, compared with loops in plain LibTorch.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/rnn.h>
#include <torch/optim/sgd.h>

#include <lockstep/data/datasets/sample_dataset.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/tasks/task_runs.h>
#include <tests/train/trainer/recorded_graph.h>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

constexpr std::int64_t kScenes = 48;
constexpr std::int64_t kSceneBatch = 16;  // three batches in an epoch

struct Pose {
  torch::Tensor joints;
  torch::Tensor visible;
};

// A batch with a struct in a struct, a tuple, and something that is no tensor.
struct Scene {
  torch::Tensor image;
  Pose pose;
  std::tuple<torch::Tensor, torch::Tensor> targets;  // mask, joints in the next frame
  std::string camera;
};

std::shared_ptr<const RowsOf<Scene>> scenes() {
  static const auto rows = [] {
    torch::manual_seed(4);
    Scene all{.image = torch::randn({kScenes, 6}),
              .pose = {.joints = torch::randn({kScenes, 3}),
                       .visible = torch::randint(2, {kScenes, 3}).to(torch::kFloat32)},
              .targets = {torch::randn({kScenes, 6}), torch::randn({kScenes, 3})},
              .camera = "left"};
    return std::make_shared<const RowsOf<Scene>>(std::move(all), kScenes);
  }();
  return rows;
}

struct SceneNetImpl : torch::nn::Module {
  torch::nn::Linear image = register_module("image", torch::nn::Linear(6, 8));
  torch::nn::Linear pose = register_module("pose", torch::nn::Linear(3, 8));
  torch::nn::Linear mask = register_module("mask", torch::nn::Linear(8, 6));
  torch::nn::Linear next = register_module("next", torch::nn::Linear(8, 3));

  SceneNetImpl() { set_fixed_weights(*this); }
  torch::Tensor loss(const Scene& batch) {
    const torch::Tensor hidden = torch::tanh(image->forward(batch.image) +
                                             pose->forward(batch.pose.joints * batch.pose.visible));
    const auto& [of_mask, of_next] = batch.targets;
    return torch::mse_loss(mask->forward(hidden), of_mask) +
           0.5 * torch::mse_loss(next->forward(hidden), of_next);
  }
};
TORCH_MODULE(SceneNet);

class SceneTask : public BatchTask<Scene> {
 public:
  SceneNet net;
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const Scene& batch) override {
    EXPECT_EQ(batch.camera, "left");
    return net->loss(batch);
  }
  void evaluation_step(const Scene& batch, Metrics& metrics) override {
    metrics.add("loss", net->loss(batch), batch_size(batch));
  }
};

// The task and the loaders must have batches of one type.
template <class Task, class Loaders>
concept Fits = requires(Trainer& trainer, Task& task, Loaders& loader) {
  trainer.fit(task, loader);
  trainer.fit(task, loader, loader);
};
static_assert(Fits<SceneTask, BatchLoader<Scene>>);
static_assert(Fits<ClassificationTask, Loader>);
static_assert(!Fits<SceneTask, Loader>);
static_assert(!Fits<ClassificationTask, BatchLoader<Scene>>);

TrainerOptions scene_options(std::int64_t accumulated = 1) {
  return {.max_epochs = 2,
          .accumulate_grad_batches = accumulated,
          .optimizer = SgdOptions{.lr = 0.1, .momentum = 0.9},
          .seed = 5,
          .info = {.recipe = "scenes"}};
}

StateDict train_scenes(const TrainerOptions& run, const std::string& strategy,
                       ProcessGroup group = group_of_one()) {
  SceneTask task;
  BatchLoader<Scene> training = loader_of_rows(scenes(), kSceneBatch, group);
  BatchLoader<Scene> validation = loader_of_rows(scenes(), kSceneBatch, group);
  Trainer trainer(run, make_strategy(strategy, group));
  trainer.fit(task, training, validation);
  return copy_of_state(*task.net);
}

// Trains by hand, with the samples of all ranks in one batch.
StateDict scenes_by_hand(std::int64_t accumulated) {
  SceneNet net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  BatchLoader<Scene> loader = loader_of_rows(scenes(), kSceneBatch);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    Scene batch;
    for (std::int64_t left = loader.steps_left(); left > 0; left = loader.steps_left()) {
      const std::int64_t parts = std::min(left, accumulated);
      optimizer.zero_grad();
      for (std::int64_t part = 0; part < parts; ++part) {
        EXPECT_TRUE(loader.next(batch));
        (net->loss(batch) / static_cast<double>(parts)).backward();
      }
      optimizer.step();
    }
  }
  return copy_of_state(*net);
}

TEST(TrainerAnyBatch, EqualsALoopByHandWithEveryReplicaStrategy) {
  for (const std::int64_t accumulated : {1, 2}) {
    const StateDict expected = scenes_by_hand(accumulated);
    const TrainerOptions run = scene_options(accumulated);
    expect_near_state(train_scenes(run, "single"), expected);
    for (const char* strategy : {"ddp", "zero1"}) {
      expect_near_state(
          state_of_ranks(
              2, [&](ProcessGroup group) { return train_scenes(run, strategy, std::move(group)); }),
          expected);
    }
  }
}

TEST(TrainerAnyBatch, AResumedRunHasTheSameBits) {
  const testing_support::TemporaryDirectory directory;
  TrainerOptions run = scene_options();
  run.ema_decay = 0.9;
  const auto on_ranks = [&run] {
    return state_of_ranks(
        2, [&](ProcessGroup group) { return train_scenes(run, "ddp", std::move(group)); });
  };
  const StateDict whole = on_ranks();
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 4;  // within the second epoch
  on_ranks();
  run.max_steps.reset();
  run.resume = true;
  expect_equal_bits(on_ranks(), whole);
}

TEST(TrainerAnyBatch, StepsOfAGraphReadTheirTensorsFromOnePlace) {
  TrainerOptions run = scene_options();
  run.max_epochs = 3;
  const StateDict expected = train_scenes(run, "ddp");
  std::string events;
  run.cuda_graph = true;
  run.make_step_graph = [&events](torch::Device, const ProcessGroup&) {
    return std::make_unique<testing_support::RecordedGraph>(&events);
  };
  expect_near_state(train_scenes(run, "ddp"), expected);
  EXPECT_EQ(events, "wwwcrrrrrr");
}

TEST(TrainerAnyBatch, StrategiesThatDivideTheModuleRefuseIt) {
  for (const char* strategy : {"dp", "pipeline"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { train_scenes(scene_options(), strategy); }),
                HasSubstr("computes with copies or parts of the module, which this task does not "
                          "allow; derive it from OutputTask, or use strategy ddp"));
  }
}

struct ReportsOfScenes : Listener {
  void on_model_summary(const ModelSummary& given) override { summary = given; }
  void on_step(const StepReport& report) override { samples = report.images; }
  bool takes_pictures() const override { return true; }
  ModelSummary summary;
  std::int64_t samples = 0;
};

struct ScenePictureTask final : SceneTask {
  std::optional<RunPicture> picture(const Scene& samples) override {
    images.push_back(samples.image);
    return std::nullopt;
  }
  std::vector<torch::Tensor> images;
};

TEST(TrainerAnyBatch, ReportsCountItsSamplesAndPicturesAreOfOneBatch) {
  ScenePictureTask task;
  ReportsOfScenes listener;
  TrainerOptions run = scene_options();
  run.overfit_batches = 2;
  run.model_summary_depth = 1;
  run.listeners = {&listener};
  const auto rows = scenes();
  BatchLoader<Scene> training = loader_of_rows(rows, kSceneBatch);
  BatchLoader<Scene> validation(rows, SequentialSampler(kScenes), {.batch_size = kSceneBatch});
  const RunReport report =
      Trainer(run, make_strategy("single", group_of_one())).fit(task, training, validation);
  EXPECT_EQ(listener.samples, 2 * kSceneBatch);
  ASSERT_EQ(listener.summary.modules.size(), 5U);
  EXPECT_EQ(listener.summary.modules[1].output_shape, (std::vector<std::int64_t>{kSceneBatch, 8}));
  ASSERT_EQ(task.images.size(), 2U) << "one for each epoch";
  EXPECT_EQ(task.images[0].size(0), kSceneBatch);
  EXPECT_TRUE(task.images[0].equal(task.images[1]));
  EXPECT_EQ(report.test->samples, 2 * kSceneBatch);
}

// --- Texts of different lengths, padded by a function of the program

struct Text {
  torch::Tensor words;  // int64 [length]
  torch::Tensor stars;  // float []
};

struct PaddedTexts {
  torch::Tensor words;    // int64 [samples, longest], padded with 0
  torch::Tensor lengths;  // int64 [samples]
  torch::Tensor stars;    // float [samples]
};

constexpr std::int64_t kTexts = 20;

struct Texts final : SampleDataset<Text> {
  std::int64_t size() const override { return kTexts; }
  Text get(std::int64_t index, const SampleKey&) const override {
    return {.words = torch::arange(index % 5 + 1, torch::kInt64) + 1 + index % 7,
            .stars = torch::tensor(static_cast<float>(index % 3))};
  }
};

PaddedTexts padded(const std::vector<Text>& texts) {
  std::vector<torch::Tensor> words, lengths, stars;
  for (const Text& text : texts) {
    words.push_back(text.words);
    lengths.push_back(torch::tensor(text.words.size(0)));
    stars.push_back(text.stars);
  }
  return {.words = torch::nn::utils::rnn::pad_sequence(words, /*batch_first=*/true),
          .lengths = torch::stack(lengths),
          .stars = torch::stack(stars)};
}

BatchLoader<PaddedTexts> text_loader() {
  return BatchLoader(collate(std::make_shared<const Texts>(), padded), DistributedSampler(kTexts),
                     {.batch_size = 6, .threads = 1});
}

struct TextNetImpl : torch::nn::Module {
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(16, 4));
  torch::nn::Linear stars = register_module("stars", torch::nn::Linear(4, 1));

  TextNetImpl() { set_fixed_weights(*this); }
  torch::Tensor loss(const PaddedTexts& batch) {
    const torch::Tensor is_word = batch.words.ne(0).unsqueeze(2);
    const torch::Tensor sum = (words->forward(batch.words) * is_word).sum(1);
    const torch::Tensor mean = sum / batch.lengths.unsqueeze(1);
    return torch::mse_loss(stars->forward(mean).squeeze(1), batch.stars);
  }
};
TORCH_MODULE(TextNet);

struct TextTask final : BatchTask<PaddedTexts> {
  TextNet net;
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const PaddedTexts& batch) override { return net->loss(batch); }
  void evaluation_step(const PaddedTexts& batch, Metrics& metrics) override {
    metrics.add("loss", net->loss(batch), batch_size(batch));
  }
};

TEST(TrainerAnyBatch, PaddedTextsEqualALoopByHand) {
  TextTask task;
  BatchLoader<PaddedTexts> training = text_loader();
  BatchLoader<PaddedTexts> validation = text_loader();
  const RunReport report = Trainer({.max_epochs = 2, .optimizer = SgdOptions{.lr = 0.2}},
                                   make_strategy("single", group_of_one()))
                               .fit(task, training, validation);

  TextNet net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.2));
  BatchLoader<PaddedTexts> loader = text_loader();
  PaddedTexts batch;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    while (loader.next(batch)) {
      optimizer.zero_grad();
      net->loss(batch).backward();
      optimizer.step();
    }
  }
  expect_near_state(copy_of_state(*task.net), copy_of_state(*net));
  const torch::NoGradGuard no_grad;
  double sum = 0;
  loader.set_epoch(0);
  while (loader.next(batch)) {
    sum += net->loss(batch).item<double>() * static_cast<double>(batch.stars.size(0));
  }
  EXPECT_NEAR(report.test->loss, sum / kTexts, 1e-5);
}

// --- The number of samples

using TimesFirst = std::tuple<torch::Tensor, torch::Tensor>;  // [2, samples], [samples]

struct TimesFirstTask : BatchTask<TimesFirst> {
  torch::nn::Linear net{2, 1};
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const TimesFirst& batch) override {
    return torch::mse_loss(net->forward(std::get<0>(batch).t()).squeeze(1), std::get<1>(batch));
  }
  void evaluation_step(const TimesFirst&, Metrics&) override {}
};

struct CountedTask final : TimesFirstTask {
  std::int64_t batch_size(const TimesFirst& batch) const override {
    return std::get<1>(batch).size(0);
  }
};

struct ColumnsDataset final : BatchDataset<TimesFirst> {
  std::int64_t size() const override { return 6; }
  void get(const BatchRequest& request, TimesFirst& batch) const override {
    batch = {torch::ones({2, request.size()}), torch::ones({request.size()})};
  }
};

TEST(TrainerAnyBatch, ATaskMayCountTheSamplesItself) {
  CountedTask counted;
  TimesFirstTask by_default;
  for (TimesFirstTask* task : {static_cast<TimesFirstTask*>(&counted), &by_default}) {
    ReportsOfScenes listener;
    BatchLoader loader(std::make_shared<const ColumnsDataset>(), SequentialSampler(6),
                       {.batch_size = 3});
    Trainer({.listeners = {&listener}}, make_strategy("single", group_of_one())).fit(*task, loader);
    EXPECT_EQ(listener.samples, task == &counted ? 6 : 4);
  }
}

// A batch whose copies are counted, of a type that visits its tensors itself.
struct CountedCopies {
  CountedCopies() = default;
  CountedCopies(const CountedCopies& other) : tensors(other.tensors) { ++copies; }
  CountedCopies& operator=(const CountedCopies& other) {
    tensors = other.tensors;
    ++copies;
    return *this;
  }
  std::vector<torch::Tensor> tensors;
  static inline int copies = 0;
};
template <class F>
void each_tensor(CountedCopies& batch, F&& f) {
  for (torch::Tensor& tensor : batch.tensors) f(tensor);
}

struct CountedCopiesTask final : BatchTask<CountedCopies> {
  torch::nn::Linear net{1, 1};
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const CountedCopies&) override { return torch::zeros({}); }
  void evaluation_step(const CountedCopies&, Metrics&) override {}
};

TEST(TrainerAnyBatch, CountsSamplesWithoutACopyOfTheBatch) {
  const CountedCopiesTask task;
  CountedCopies batch;
  batch.tensors = {torch::Tensor(), torch::ones({}), torch::ones({3, 2}), torch::ones({5})};
  CountedCopies::copies = 0;
  EXPECT_EQ(task.batch_size(batch), 3) << "of the first tensor with dimensions";
  EXPECT_EQ(CountedCopies::copies, 0);
  EXPECT_EQ(batch.tensors[2].use_count(), 1) << "the batch still has its tensors";
}

struct ScalarTask final : BatchTask<torch::Tensor> {
  torch::nn::Linear net{1, 1};
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const torch::Tensor& batch) override {
    return net->forward(batch.view({1, 1})).sum();
  }
  void evaluation_step(const torch::Tensor&, Metrics&) override {}
};

struct ScalarDataset final : BatchDataset<torch::Tensor> {
  std::int64_t size() const override { return 2; }
  void get(const BatchRequest&, torch::Tensor& batch) const override { batch = torch::ones({}); }
};

TEST(TrainerAnyBatch, ABatchWithoutDimensionsMustBeCountedByTheTask) {
  ScalarTask task;
  BatchLoader loader(std::make_shared<const ScalarDataset>(), SequentialSampler(2),
                     {.batch_size = 1});
  Trainer trainer({}, make_strategy("single", group_of_one()));
  EXPECT_EQ(message_of<ConfigError>([&] { trainer.fit(task, loader); }),
            "Trainer: a batch has no tensor with a first dimension, which would be its number of "
            "samples; override the task's batch_size()");
}

}  // namespace
}  // namespace lockstep::train
