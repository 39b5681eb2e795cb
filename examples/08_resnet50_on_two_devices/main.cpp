// ResNet-50 on two devices, as in PyTorch's model-parallel tutorial: first naively, where one
// device waits while the other computes, then as a pipeline with several schedules. Every way must
// give the loss and the gradients of the unsplit model. In one process, the two devices (CPUs or
// GPUs) belong to threads of this process; with two ranks, each rank has one device.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>
#include <lockstep/models/resnet.h>
#include <torch/torch.h>

using lockstep::ProcessGroup;
using lockstep::Schedule;
using torch::nn::functional::cross_entropy;
namespace nn = torch::nn;

namespace {

using Stages = std::vector<nn::Sequential>;

struct Settings {
  std::int64_t image_size = 128;
  std::int64_t batch = 8;
  int micro_batches = 4;
  int steps = 3;                 // timed steps of each way
  std::string cut = "tutorial";  // or "balance"
  std::string device = "cpu";    // or "cuda"
  std::string backend = "auto";
};

std::int64_t number_of(const std::string& name, const std::string& value) {
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stopped != end || number < 1 || number > 1'000'000) {
    throw lockstep::ConfigError(name + " must be from 1 to 1000000, got '" + value + "'");
  }
  return number;
}

const std::string& one_of(const std::string& name, const std::string& value,
                          const std::string& first, const std::string& second) {
  if (value == first || value == second) return value;
  throw lockstep::ConfigError(name + " must be " + first + " or " + second + ", got '" + value +
                              "'");
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw lockstep::ConfigError(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--image-size") {
      settings.image_size = number_of(name, value);
    } else if (name == "--batch") {
      settings.batch = number_of(name, value);
    } else if (name == "--micro-batches") {
      settings.micro_batches = static_cast<int>(number_of(name, value));
    } else if (name == "--steps") {
      settings.steps = static_cast<int>(number_of(name, value));
    } else if (name == "--cut") {
      settings.cut = one_of(name, value, "tutorial", "balance");
    } else if (name == "--device") {
      settings.device = one_of(name, value, "cpu", "cuda");
    } else if (name == "--backend") {
      settings.backend = value;
    } else {
      throw lockstep::ConfigError("unknown option " + name);
    }
  }
  const int parts = std::max(2, settings.micro_batches);  // our own table has two
  if (settings.batch < parts) {
    throw lockstep::ConfigError("--batch must be at least " + std::to_string(parts) +
                                ", an image for each micro-batch, got " +
                                std::to_string(settings.batch));
  }
  return settings;
}

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

// --- The model and its stages ---

template <class Module>
std::shared_ptr<Module> part(const lockstep::ResNet& net, const std::string& name) {
  const auto children = net->named_children();
  return std::dynamic_pointer_cast<Module>(children[name]);
}

// ResNet-50 as a sequence of layers, which are shared with `net` and have its weights.
nn::Sequential layers_of(const lockstep::ResNet& net) {
  nn::Sequential layers(part<nn::Conv2dImpl>(net, "conv1"), part<nn::BatchNorm2dImpl>(net, "bn1"),
                        nn::ReLU(), nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  for (const char* blocks : {"layer1", "layer2", "layer3", "layer4"}) {
    layers->extend(*part<nn::SequentialImpl>(net, blocks));
  }
  layers->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({1, 1})));
  layers->push_back(nn::Flatten());
  layers->push_back(part<nn::LinearImpl>(net, "fc"));
  return layers;
}

// Two stages, which share their layers with `layers`.
Stages cut(const nn::Sequential& layers, const Settings& settings, ProcessGroup& group) {
  if (settings.cut != "balance") {
    // The tutorial cuts after layer2: four layers of the stem and 3 + 4 blocks, then the rest.
    return lockstep::split(layers, {11, 12});  // how many layers each stage has
  }
  const auto sample = torch::randn({2, 3, settings.image_size, settings.image_size});
  const lockstep::Balance balance = lockstep::balance(layers, sample, /*stages=*/2);
  if (group.rank() == 0) std::printf("%s\n", balance.text().c_str());
  // Measured times differ between ranks, so that all use rank 0's cut.
  const int first = std::stoi(group.broadcast_object(std::to_string(balance.sizes[0])));
  return lockstep::split(layers, {first, static_cast<int>(layers->size()) - first});
}

// --- The unsplit model ---

struct Batch {
  torch::Tensor x, y;
};

struct Learnt {
  double loss = 0;
  std::vector<torch::Tensor> gradients{};
};

std::vector<torch::Tensor> gradients_of(const Stages& stages) {
  std::vector<torch::Tensor> gradients;
  for (const nn::Sequential& stage : stages) {
    for (const torch::Tensor& parameter : stage->parameters()) {
      gradients.push_back(parameter.grad().detach().cpu().clone());
    }
  }
  return gradients;
}

// The unsplit model, which accumulates the gradients of `parts` parts of the batch. A pipeline with
// this number of micro-batches computes the same, because batch normalisation uses each part's
// statistics.
Learnt run_unsplit(lockstep::ResNet net, const Batch& batch, int parts, const Stages& stages) {
  net->zero_grad();
  Learnt learnt;
  const auto xs = batch.x.tensor_split(parts), ys = batch.y.tensor_split(parts);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double share = static_cast<double>(xs[i].size(0)) / static_cast<double>(batch.x.size(0));
    const torch::Tensor loss = cross_entropy(net->forward(xs[i]), ys[i]) * share;
    loss.backward();
    learnt.loss += loss.item<double>();
  }
  learnt.gradients = gradients_of(stages);
  return learnt;
}

// --- The model on two devices ---

// Runs each way to train, compares it with the unsplit model, and measures its time.
class Comparison {
 public:
  // `own_stages` are the stages whose gradients this process computes.
  Comparison(lockstep::ResNet net, Stages own_stages, const Settings& settings, bool speaks)
      : net_(std::move(net)),
        own_stages_(std::move(own_stages)),
        steps_(settings.steps),
        speaks_(speaks) {}

  // `step` runs a forward and a backward. It returns the loss if this process has it.
  template <class Step>
  void run(const std::string& name, const Learnt& expected, const Step& step) {
    net_->zero_grad();
    check(expected, step());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps_; ++i) {
      net_->zero_grad();
      const torch::Tensor loss = step();
      if (loss.defined()) loss.item<double>();  // waits for a GPU
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (speaks_)
      std::printf("%-24s %8.1f ms a step\n", name.c_str(), 1e3 * seconds.count() / steps_);
  }

 private:
  void check(const Learnt& expected, const torch::Tensor& loss) const {
    const std::vector<torch::Tensor> gradients = gradients_of(own_stages_);
    double difference = 0, norm = 0;  // sums of squares
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      difference += (gradients[i] - expected.gradients[i]).square().sum().item<double>();
      norm += expected.gradients[i].square().sum().item<double>();
    }
    require(difference <= 1e-6 * norm, "the gradients are those of the unsplit model");
    if (!loss.defined()) return;
    require(std::abs(loss.item<double>() - expected.loss) <= 1e-3 * std::abs(expected.loss),
            "the loss is that of the unsplit model");
  }

  lockstep::ResNet net_;
  const Stages own_stages_;
  const int steps_;
  const bool speaks_;
};

torch::Tensor criterion(const torch::Tensor& output, const torch::Tensor& target) {
  return cross_entropy(output, target);
}

// A step as in the tutorial: one device waits while the other computes.
torch::Tensor naive_step(Stages& stages, const std::vector<torch::Device>& devices,
                         const Batch& batch) {
  const torch::Tensor hidden = stages[0]->forward(batch.x.to(devices[0]));
  const torch::Tensor output = stages[1]->forward(hidden.to(devices[1]));
  const torch::Tensor loss = criterion(output, batch.y.to(devices[1]));
  loss.backward();
  return loss.detach();
}

struct Expected {
  Learnt whole, halves, micro_batches;
};

void run_on_threads(Comparison& comparison, Stages& stages, const Expected& expected,
                    const Batch& batch, const Settings& settings, int threads) {
  std::vector<torch::Device> devices(2, torch::Device(torch::kCPU));
  if (settings.device == "cuda") {
    devices = {torch::Device(torch::kCUDA, 0), torch::Device(torch::kCUDA, 1)};
  }
  for (std::size_t i = 0; i < 2; ++i) stages[i]->to(devices[i]);
  comparison.run("naive", expected.whole, [&] { return naive_step(stages, devices, batch); });

  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbH1}) {
    lockstep::Pipeline pipe({stages[0], stages[1]}, devices,
                            {.micro_batches = settings.micro_batches,
                             .schedule = schedule,
                             .threads_per_worker = threads});
    const auto step = [&] {
      return pipe.step(criterion, batch.x, batch.y);  // forward and backward of the whole batch
    };
    comparison.run("pipeline, " + std::string(lockstep::schedule_name(schedule)),
                   expected.micro_batches, step);
    const lockstep::pipeline::Timeline& measured = pipe.timeline();  // timeline of the last step
    const auto replayed = replay(pipe.table(), costs_of(measured));  // replayed without waits
    std::printf("%24s bubble %.1f%%, replayed %.1f%%\n", "", 100 * measured.bubble(),
                100 * replayed.bubble());
  }

  const auto table = lockstep::pipeline::table_of(
      "0F0,0F1,0B0,0B1\n"
      "1F0,1I0,1F1,1I1,1W0,1W1\n",
      "mine");
  lockstep::Pipeline pipe({stages[0], stages[1]}, devices,
                          {.table = table, .threads_per_worker = threads});
  comparison.run("pipeline, my own table", expected.halves,
                 [&] { return pipe.step(criterion, batch.x, batch.y); });
}

// Does the same with one stage per rank. The naive way is a pipeline with one micro-batch.
void run_on_ranks(Comparison& comparison, Stages& stages, const Expected& expected,
                  const Batch& batch, const Settings& settings, ProcessGroup& group,
                  torch::Device device) {
  const nn::Sequential stage = stages[static_cast<std::size_t>(group.rank())];
  const torch::Tensor nothing;
  const torch::Tensor& x = group.rank() == 0 ? batch.x : nothing;
  const torch::Tensor& y = group.rank() == 1 ? batch.y : nothing;
  {
    lockstep::DistributedPipeline pipe({stage}, group, device, {.micro_batches = 1});
    comparison.run("naive", expected.whole, [&] { return pipe.step(criterion, x, y); });
  }
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbH1}) {
    lockstep::DistributedPipeline pipe(
        {stage}, group, device, {.micro_batches = settings.micro_batches, .schedule = schedule});
    comparison.run("pipeline, " + std::string(lockstep::schedule_name(schedule)),
                   expected.micro_batches, [&] { return pipe.step(criterion, x, y); });
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  lockstep::ProcessGroupOptions options;
  options.backend = settings.backend;
  const auto worker = lockstep::worker_environment();
  if (settings.device == "cuda") {
    const int index = worker ? worker->local_rank : 0;
    options.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  auto group = lockstep::init_process_group(options);
  if (group.size() > 2) throw lockstep::ConfigError("there are two stages: start one or two ranks");
  // The number of threads per device. A launcher has already limited a rank to its share of the
  // processors.
  const int all = torch::get_num_threads();
  const int threads = group.size() == 1 ? std::max(1, all / 2) : all;
  torch::set_num_threads(threads);

  torch::manual_seed(0);
  lockstep::ResNet net(
      lockstep::ResNetOptions{.block = lockstep::ResNetBlock::kBottleneck, .layers = {3, 4, 6, 3}});
  const Batch batch{torch::randn({settings.batch, 3, settings.image_size, settings.image_size}),
                    torch::randint(1000, {settings.batch}, torch::kInt64)};
  Stages stages = cut(layers_of(net), settings, group);
  const Stages own =
      group.size() == 1 ? stages : Stages{stages[static_cast<std::size_t>(group.rank())]};

  net->to(options.device);
  const Batch here{batch.x.to(options.device), batch.y.to(options.device)};
  const Expected expected{run_unsplit(net, here, 1, own), run_unsplit(net, here, 2, own),
                          run_unsplit(net, here, settings.micro_batches, own)};

  Comparison comparison(net, own, settings, group.rank() == 0);
  if (group.size() == 1) {
    run_on_threads(comparison, stages, expected, batch, settings, threads);
  } else {
    run_on_ranks(comparison, stages, expected, batch, settings, group, options.device);
  }
  group.barrier();
  if (group.rank() != 0) return 0;
  std::printf("group of %d over %s: all results are right\n", group.size(),
              group.backend().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
