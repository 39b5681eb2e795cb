#include <lockstep/bench/pipeline/measured_pipeline.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/bench/pipeline/waiting_stage.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/parallel/pipeline/gradient_nodes.h>
#include <lockstep/parallel/pipeline/pipeline.h>

namespace lockstep::bench {
namespace {

constexpr int kPipelineWarmUps = 3;

// Passes the batch on as if its gradient were needed. Otherwise the first layer would not compute
// that gradient, and the first stage would cost less than the others. The sink ends the first part
// of a split backward and drops the gradient, so that nothing is computed or kept that the other
// stages do not compute or keep.
struct WantedBatchImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x.detach();
    if (c10::GradMode::is_enabled()) pipeline::GradientSink::attach(y);
    return y;
  }
};
TORCH_MODULE(WantedBatch);

std::vector<pipeline::StageModule> make_matrix_stages(int count, const ToyStages& toys) {
  std::vector<pipeline::StageModule> stages;
  for (int stage = 0; stage < count; ++stage) {
    torch::nn::Sequential layers;
    if (stage == 0) layers->push_back(WantedBatch());
    for (int layer = 0; layer < toys.layers; ++layer) {
      layers->push_back(torch::nn::Linear(toys.width, toys.width));
      if (toys.activation == "gelu") {
        layers->push_back(torch::nn::GELU());
      } else {
        layers->push_back(torch::nn::ReLU());
      }
    }
    stages.emplace_back(layers);
  }
  return stages;
}

std::vector<pipeline::StageModule> make_waiting_stages(
    int count, const std::shared_ptr<CalibratedWait>& wait) {
  std::vector<pipeline::StageModule> stages;
  for (int stage = 0; stage < count; ++stage) stages.emplace_back(WaitingStage(wait));
  return stages;
}

PipelineOptions options_of(const pipeline::Table& table, const ToyStages& toys) {
  PipelineOptions options;
  options.table = table;
  options.threads_per_worker = toys.threads;
  // A table with reductions is run with a single replica, for which reductions do nothing.
  if (has_reductions(table)) options.reduce = [](int, const Tensors&) {};
  return options;
}

// A pipeline on this machine's processors with a batch of random numbers.
class ToyPipeline {
 public:
  ToyPipeline(std::vector<pipeline::StageModule> stages, const PipelineOptions& options,
              std::int64_t samples, std::int64_t width)
      : pipe_(std::move(stages),
              std::vector<torch::Device>(options.table->workers.size(), torch::Device(torch::kCPU)),
              options),
        x_(torch::randn({samples * options.table->micro_batches, width})),
        y_(torch::zeros({x_.size(0)})) {}

  /// Returns the duration of the step in seconds.
  double step() {
    const Clock::time_point begin = Clock::now();
    // A loss that keeps nothing for its backward, so that only the stages' memory is measured.
    pipe_.step([](const torch::Tensor& output, const torch::Tensor&) { return output.mean(); }, x_,
               y_);
    return seconds_since(begin);
  }
  void warm_up() {
    for (int step_number = 0; step_number < kPipelineWarmUps; ++step_number) step();
  }
  const Pipeline& pipe() const { return pipe_; }

 private:
  Pipeline pipe_;
  const torch::Tensor x_, y_;
};

struct MeasuredSteps {
  std::vector<double> seconds{};  // duration of each call
  std::vector<pipeline::Timeline> timelines{};

  pipeline::Timeline median_timeline() {
    const auto middle = timelines.begin() + static_cast<std::ptrdiff_t>(timelines.size() / 2);
    std::nth_element(timelines.begin(), middle, timelines.end(),
                     [](const auto& a, const auto& b) { return a.end < b.end; });
    return std::move(*middle);
  }
};

// Steps of the stages and of empty stages alternate, so that a change in the machine's speed
// affects both.
void measure_in_turn(ToyPipeline& own, ToyPipeline& empty, int steps, MeasuredSteps& of_own,
                     MeasuredSteps& of_empty) {
  for (int step = 0; step < steps; ++step) {
    of_own.seconds.push_back(own.step());
    of_own.timelines.push_back(own.pipe().timeline());
    of_empty.seconds.push_back(empty.step());
  }
}

// Counts the bytes in a separate step, because counting takes time.
ActivationBytes bytes_of(const std::vector<pipeline::StageModule>& stages,
                         const pipeline::Table& table, const ToyStages& toys) {
  PipelineOptions options = options_of(table, toys);
  options.measure_memory = true;
  ToyPipeline counted(stages, options, toys.samples, toys.width);
  counted.step();
  return counted.pipe().peak_activation_bytes();
}

}  // namespace

PipelineMeasurement measure_pipeline(const pipeline::Table& table, const ToyStages& toys) {
  torch::manual_seed(0);
  const bool waits = toys.wait_microseconds > 0;
  const auto no_wait = std::make_shared<CalibratedWait>(std::chrono::nanoseconds(0));
  const auto wait =
      std::make_shared<CalibratedWait>(std::chrono::microseconds(toys.wait_microseconds));
  const auto stages =
      waits ? make_waiting_stages(table.stages(), wait) : make_matrix_stages(table.stages(), toys);
  const PipelineOptions options = options_of(table, toys);
  ToyPipeline own(stages, options, waits ? 1 : toys.samples, waits ? 1 : toys.width);
  ToyPipeline empty(make_waiting_stages(table.stages(), no_wait), options, 1, 1);
  own.warm_up();
  empty.warm_up();
  wait->forget();
  MeasuredSteps of_own, of_empty;
  measure_in_turn(own, empty, toys.steps, of_own, of_empty);

  PipelineMeasurement measured{.table = own.pipe().table(),
                               .timeline = of_own.median_timeline(),
                               .step_seconds = median(of_own.seconds),
                               .empty_step_seconds = median(of_empty.seconds),
                               .processors = static_cast<int>(available_cpus().size())};
  if (waits) {
    measured.waiting = WaitingStages{.asked_microseconds = toys.wait_microseconds,
                                     .mean_microseconds = wait->mean_seconds() * 1e6};
    return measured;
  }
  ActivationBytes bytes = bytes_of(stages, table, toys);
  measured.worker_bytes = std::move(bytes.workers);
  measured.stage_bytes = std::move(bytes.stages);
  return measured;
}

}  // namespace lockstep::bench
