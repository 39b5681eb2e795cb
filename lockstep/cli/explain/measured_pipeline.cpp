#include <lockstep/cli/explain/measured_pipeline.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/core/cpu.h>
#include <lockstep/parallel/pipeline/pipeline.h>

namespace lockstep {
namespace {

constexpr int kPipelineWarmUps = 3;

std::vector<pipeline::StageModule> make_toy_stages(int count, const ToyStages& toys) {
  std::vector<pipeline::StageModule> stages;
  for (int stage = 0; stage < count; ++stage) {
    torch::nn::Sequential layers;
    for (int layer = 0; layer < toys.layers; ++layer) {
      layers->push_back(torch::nn::Linear(toys.width, toys.width));
      layers->push_back(torch::nn::ReLU());
    }
    stages.emplace_back(layers);
  }
  return stages;
}

PipelineOptions options_of(const pipeline::Table& table, const ToyStages& toys) {
  PipelineOptions options;
  options.table = table;
  options.threads_per_worker = toys.threads;
  // A table with reductions is run as by a single replica, whose sums are there already.
  const bool reduces =
      std::any_of(table.workers.begin(), table.workers.end(), [](const auto& line) {
        return std::any_of(line.begin(), line.end(), [](const pipeline::Action& action) {
          return action.kind == pipeline::Kind::kReduce;
        });
      });
  if (reduces) options.reduce = [](int, const Tensors&) {};
  return options;
}

}  // namespace

PipelineMeasurement measure_pipeline(const pipeline::Table& table, const ToyStages& toys) {
  torch::manual_seed(0);
  Pipeline pipe(make_toy_stages(table.stages(), toys),
                std::vector<torch::Device>(table.workers.size(), torch::Device(torch::kCPU)),
                options_of(table, toys));
  const torch::Tensor x = torch::randn({toys.samples * table.micro_batches, toys.width});
  const torch::Tensor y = torch::zeros_like(x);
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  std::vector<pipeline::Timeline> steps;
  for (int step = -kPipelineWarmUps; step < toys.steps; ++step) {
    pipe.step(criterion, x, y);
    if (step >= 0) steps.push_back(pipe.timeline());
  }
  const auto median = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), median, steps.end(),
                   [](const auto& a, const auto& b) { return a.end < b.end; });
  // The inputs of the layers, and what the last ReLU gave, stay for the backward.
  const double floats = static_cast<double>(toys.layers + 1) * static_cast<double>(toys.samples) *
                        static_cast<double>(toys.width);
  return {.table = pipe.table(),
          .timeline = std::move(*median),
          .bytes_per_activation = floats * sizeof(float),
          .processors = static_cast<int>(available_cpus().size())};
}

}  // namespace lockstep
