// A U-Net with two inputs and two losses, trained by the Trainer on batches of a structure of its
// own. An image shows two shapes, and a pose points from the centre to one of them: the net learns
// the mask of this shape and its kind. Data and initial weights are formulas, because a test
// compares the numbers of this program with those of the same training in Python.
//
// Usage: two_inputs FOLDER [STRATEGY [MAX_STEPS]]
// Checkpoints are written to FOLDER; if it has some, the run is resumed. STRATEGY is single, ddp or
// zero1. MAX_STEPS ends the run early, as an interruption would.
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>
#include <lockstep/train/trainer.h>
#include <torch/torch.h>

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr std::int64_t kImageSize = 16;
constexpr std::int64_t kKinds = 3;  // disc, square, cross
constexpr std::int64_t kTrainingScenes = 480;
constexpr std::int64_t kValidationScenes = 50;
constexpr std::int64_t kGlobalBatch = 16;  // samples of a step on all ranks together
constexpr double kLabelWeight = 0.5;

// --- The data ---

// All tensors of a batch have the batch's samples in their first dimension. A sample has the same
// structure, without this dimension.
struct Inputs {
  torch::Tensor image;  // float32 [batch, 1, 16, 16]
  torch::Tensor pose;   // float32 [batch, 2]: a direction
};
struct Targets {
  torch::Tensor mask;   // float32 [batch, 1, 16, 16]: 1 within the shape, 0 elsewhere
  torch::Tensor label;  // int64 [batch]: the shape's kind
};
struct Scene {
  Inputs inputs;
  Targets targets;
};

// The pixels of a shape, as float64, from their distances to its centre in both directions.
torch::Tensor shape(std::int64_t kind, const torch::Tensor& dx, const torch::Tensor& dy) {
  const torch::Tensor larger = torch::maximum(dx, dy);
  torch::Tensor pixels = larger < 0.33;
  if (kind == 0) pixels = dx * dx + dy * dy < 0.1444;
  if (kind == 2) pixels = (larger < 0.4).logical_and(torch::minimum(dx, dy) < 0.12);
  return pixels.to(torch::kFloat64);
}

// Each scene is a function of its number.
class Scenes final : public lockstep::SampleDataset<Scene> {
 public:
  Scenes(std::int64_t first, std::int64_t size) : first_(first), size_(size) {}
  std::int64_t size() const override { return size_; }
  Scene get(std::int64_t index, const lockstep::SampleKey& /*key*/) const override {
    const std::int64_t number = first_ + index;
    const double angle = 2.4 * static_cast<double>(number);
    const double right = std::cos(angle), down = std::sin(angle);
    const std::int64_t kind = number % kKinds, other_kind = number / kKinds % kKinds;

    const torch::Tensor line = (torch::arange(kImageSize, torch::kFloat64) + 0.5) / 8 - 1;
    const std::vector<torch::Tensor> grid = torch::meshgrid({line, line}, "ij");
    const torch::Tensor &y = grid[0], &x = grid[1];
    const torch::Tensor background = 0.1 * (40 * x * y + number).sin();
    const torch::Tensor mask =
        shape(kind, (x - 0.55 * right).abs(), (y - 0.55 * down).abs()).unsqueeze(0);
    const torch::Tensor other =
        shape(other_kind, (x + 0.55 * right).abs(), (y + 0.55 * down).abs());
    return {.inputs = {.image = (background + mask + other).to(torch::kFloat32),
                       .pose = torch::tensor({right, down}, torch::kFloat32)},
            .targets = {.mask = mask.to(torch::kFloat32), .label = torch::tensor(kind)}};
  }

 private:
  std::int64_t first_;
  std::int64_t size_;
};

lockstep::BatchLoader<Scene> training_loader(const lockstep::DataShare& share) {
  const auto scenes = std::make_shared<const Scenes>(/*first=*/0, kTrainingScenes);
  return {lockstep::collate(scenes),  // stacks the tensors of the samples
          lockstep::DistributedSampler(scenes->size(),
                                       {.rank = share.rank, .world_size = share.size, .seed = 1}),
          {.batch_size = kGlobalBatch / share.size, .threads = 1}};
}

lockstep::BatchLoader<Scene> validation_loader(const lockstep::DataShare& share) {
  const auto scenes = std::make_shared<const Scenes>(/*first=*/1000, kValidationScenes);
  return {lockstep::collate(scenes),
          lockstep::EvaluationSampler(scenes->size(), share.rank, share.size),
          {.batch_size = kGlobalBatch / share.size, .threads = 1}};
}

// --- The net ---

// Group normalisation treats each sample by itself, so that the results do not depend on how a
// batch is divided among ranks.
struct BlockImpl : nn::Module {
  BlockImpl(std::int64_t in, std::int64_t out)
      : conv(register_module("conv",
                             nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)))),
        norm(register_module("norm", nn::GroupNorm(4, out))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::silu(norm(conv(x))); }

  nn::Conv2d conv;
  nn::GroupNorm norm;
};
TORCH_MODULE(Block);

struct Outputs {
  torch::Tensor mask;   // logits, [batch, 1, 16, 16]
  torch::Tensor label;  // logits, [batch, 3]
};

struct UNetImpl : nn::Module {
  Outputs forward(const Inputs& inputs) {
    const torch::Tensor fine = down1(inputs.image);                    // [batch, 8, 16, 16]
    const torch::Tensor coarse = down2(torch::avg_pool2d(fine, 2));    // [batch, 16, 8, 8]
    const torch::Tensor bottom = down3(torch::avg_pool2d(coarse, 2));  // [batch, 32, 4, 4]
    const torch::Tensor fused = fuse(bottom * pose(inputs.pose).view_as(bottom));
    const torch::Tensor up = up1(joined(up2(joined(fused, coarse)), fine));
    return {.mask = mask(up), .label = label(fused.mean({2, 3}))};
  }

  Block down1 = register_module("down1", Block(1, 8));
  Block down2 = register_module("down2", Block(8, 16));
  Block down3 = register_module("down3", Block(16, 32));
  nn::Linear pose = register_module("pose", nn::Linear(2, 32 * 4 * 4));
  Block fuse = register_module("fuse", Block(32, 32));
  Block up2 = register_module("up2", Block(32 + 16, 16));
  Block up1 = register_module("up1", Block(16 + 8, 8));
  nn::Conv2d mask = register_module("mask", nn::Conv2d(8, 1, 1));
  nn::Linear label = register_module("label", nn::Linear(32, kKinds));

 private:
  // `x`, enlarged to the size of `skipped`, and the channels of both.
  static torch::Tensor joined(const torch::Tensor& x, const torch::Tensor& skipped) {
    const std::vector<std::int64_t> size = {skipped.size(2), skipped.size(3)};
    return torch::cat({F::interpolate(x, F::InterpolateFuncOptions().size(size)), skipped}, 1);
  }
};
TORCH_MODULE(UNet);

// Weights that look random, but are the same in every language: sin(k * k), where k counts the
// elements of all weights, with the variance 1 / inputs of an element.
void initialize(nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::int64_t first = 0;
  for (const auto& item : module.named_parameters()) {
    torch::Tensor parameter = item.value();
    if (item.key().ends_with("bias")) parameter.zero_();
    if (parameter.dim() < 2) continue;  // norms begin with weights of 1
    const torch::Tensor k = torch::arange(first, first + parameter.numel(), torch::kFloat64);
    const auto inputs = static_cast<double>(parameter[0].numel());
    parameter.copy_(((k * k).sin() * std::sqrt(2 / inputs)).view_as(parameter));
    first += parameter.numel();
  }
}

// --- The task ---

class Segmentation final : public lockstep::BatchTask<Scene> {
 public:
  Segmentation() { initialize(*net_); }
  nn::Module& module() override { return *net_; }

  // Weights decay, but neither biases nor the weights of norms do.
  std::vector<lockstep::ConfiguredOptimizer> configure_optimizers() override {
    return {{.groups = lockstep::no_decay_on_norms_and_biases(
                 *net_, lockstep::AdamWOptions{.lr = 5e-3, .weight_decay = 0.1})}};
  }

  torch::Tensor training_step(const Scene& batch) override {
    return losses(net_->forward(batch.inputs), batch.targets).total();
  }

  void evaluation_step(const Scene& batch, lockstep::Metrics& metrics) override {
    const std::int64_t samples = batch_size(batch);  // that of the first tensor
    const Outputs outputs = net_->forward(batch.inputs);
    const Losses each = losses(outputs, batch.targets);
    metrics.add("loss", each.total(), samples);
    metrics.add("mask_loss", each.mask, samples);
    metrics.add("label_loss", each.label, samples);

    const torch::Tensor probability = outputs.mask.sigmoid(), mask = batch.targets.mask;
    const torch::Tensor both = (probability * mask).sum({1, 2, 3});
    metrics.add_sum("dice", (2 * both / (probability + mask).sum({1, 2, 3})).sum(), samples);
    metrics.add_sum("accuracy", (outputs.label.argmax(1) == batch.targets.label).sum(), samples,
                    lockstep::MetricUnit::kFraction);
  }

 private:
  struct Losses {
    torch::Tensor mask, label;  // means over the samples
    torch::Tensor total() const { return mask + kLabelWeight * label; }
  };
  static Losses losses(const Outputs& outputs, const Targets& targets) {
    return {.mask = F::binary_cross_entropy_with_logits(outputs.mask, targets.mask),
            .label = F::cross_entropy(outputs.label, targets.label)};
  }

  UNet net_;
};

// --- The program ---

// Prints the numbers of the run with all their digits. The Trainer calls listeners on rank 0 only.
class Numbers final : public lockstep::Listener {
 public:
  Numbers() { std::cout.precision(17); }
  void on_run_begin(const lockstep::RunInfo& info) override {
    if (info.resumed_from.empty()) return;
    std::cout << "resumed: epoch=" << info.first_epoch << " step=" << info.first_step << '\n';
  }
  void on_epoch_end(const lockstep::EpochReport& report) override {
    std::cout << "epoch " << report.epoch << ": train_loss=" << report.train_loss;
    if (report.test) print(*report.test);
    std::cout << std::endl;
  }
  void on_run_end(const lockstep::RunReport& report) override {
    std::cout << "evaluation:";
    if (report.test) print(*report.test);
    std::cout << '\n';
  }

 private:
  static void print(const lockstep::Evaluation& evaluation) {
    std::cout << " loss=" << evaluation.loss;
    for (const auto& metric : evaluation.values) {
      std::cout << ' ' << metric.name << '=' << metric.value;
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw lockstep::ConfigError("usage: two_inputs FOLDER [STRATEGY [MAX_STEPS]]");
  auto group = lockstep::init_process_group();
  torch::set_num_threads(1);  // more would not make this small net faster
  if (kGlobalBatch % group.size() != 0) {
    throw lockstep::ConfigError("the number of ranks must divide the batch of 16");
  }
  const std::string by_size = group.size() == 1 ? "single" : "ddp";
  auto strategy = lockstep::make_strategy(argc > 2 ? argv[2] : by_size, group);

  Segmentation task;
  auto training = training_loader(strategy->data_share());
  auto validation = validation_loader(strategy->data_share());
  lockstep::TrainerOptions options{.max_epochs = 6,
                                   .schedule = {.kind = lockstep::ScheduleKind::kCosine},
                                   .checkpoints = {.directory = argv[1]},
                                   .resume = lockstep::Resume::kAuto,
                                   .info = {.recipe = "two_inputs"}};
  if (argc > 3) options.max_steps = std::stoll(argv[3]);
  options.listeners.push_back(std::make_unique<Numbers>());
  lockstep::Trainer(options, std::move(strategy)).fit(task, training, validation);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return lockstep::exit_code(error);
}
