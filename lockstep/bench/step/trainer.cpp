#include <lockstep/bench/step/trainer.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/options.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <lockstep/train/optimization/memory_format.h>

namespace lockstep::bench {
namespace {

constexpr std::int64_t kClasses = 10;

class MnistStepNet final : public StepNet {
 public:
  torch::Tensor forward(const torch::Tensor& images) override { return net_->forward(images); }
  torch::Tensor make_images(std::int64_t batch) const override {
    return torch::randn({batch, 1, 28, 28});
  }
  torch::Tensor make_labels(std::int64_t batch) const override {
    return torch::randint(kClasses, {batch}, torch::kLong);
  }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    return at::nll_loss(output, labels);
  }

 private:
  MnistNet net_ = register_module("net", MnistNet());
};

class ResNetStepNet final : public StepNet {
 public:
  torch::Tensor forward(const torch::Tensor& images) override { return net_->forward(images); }
  torch::Tensor make_images(std::int64_t batch) const override {
    return torch::randn({batch, 3, 32, 32});
  }
  torch::Tensor make_labels(std::int64_t batch) const override {
    return torch::randint(kClasses, {batch}, torch::kLong);
  }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    return at::cross_entropy_loss(output, labels);
  }

 private:
  ResNet net_ = register_module("net", resnet18(ResNetStem::kCifar, kClasses));
};

// .contiguous() would leave single-channel images unchanged, because they already count as
// channels-last.
torch::Tensor channels_last(const torch::Tensor& images) {
  return images.to(images.options(), /*non_blocking=*/false, /*copy=*/true,
                   torch::MemoryFormat::ChannelsLast);
}

class UncoupledTrainer final : public StepTrainer {
 public:
  UncoupledTrainer(const StepWork& work, std::optional<ProcessGroup> group)
      : replica_(work),
        optimizer_(*replica_.net(), optimizer_options(work.optimizer)),
        group_(std::move(group)) {}

  void step() override {
    replica_.zero_grad(optimizer_);
    replica_.backward(
        [this](const torch::Tensor& images) { return replica_.net()->forward(images); });
    if (group_) group_->all_reduce(number_);
    optimizer_.step();
  }

 private:
  Replica replica_;
  Optimizer optimizer_;
  std::optional<ProcessGroup> group_;
  torch::Tensor number_ = torch::zeros({1});
};

ParameterMemory parameter_memory(const std::string& name) {
  if (name == "flat") return ParameterMemory::kFlat;
  if (name == "shared") return ParameterMemory::kShared;
  return ParameterMemory::kAsIs;
}

DdpOptions ddp_options(const StepVariant& variant, const torch::nn::Module& net) {
  DdpOptions options;
  if (variant.bucket_cap_mb) {
    options.bucket_cap_mb = *variant.bucket_cap_mb;
    options.first_bucket_cap_mb = std::min(options.first_bucket_cap_mb, *variant.bucket_cap_mb);
  } else {
    double bytes = 0;
    for (const auto& parameter : net.parameters()) bytes += static_cast<double>(parameter.nbytes());
    // Larger than all of them, so that the last gradient closes the bucket.
    options.bucket_cap_mb = options.first_bucket_cap_mb = 1 + bytes / (1 << 20);
  }
  options.find_unused_parameters = variant.find_unused_parameters;
  options.parameter_memory = parameter_memory(variant.parameter_memory);
  return options;
}

using WrappedNet = DistributedDataParallel<std::shared_ptr<StepNet>>;

std::unique_ptr<Optimizer> make_optimizer(WrappedNet& ddp, const OptimizerOptions& options,
                                          const Optimizer*) {
  return std::make_unique<Optimizer>(*ddp.module(), options);
}
std::unique_ptr<ZeroRedundancyOptimizer> make_optimizer(WrappedNet& ddp,
                                                        const OptimizerOptions& options,
                                                        const ZeroRedundancyOptimizer*) {
  return std::make_unique<ZeroRedundancyOptimizer>(ddp.core(), *ddp.module(), options);
}

template <class OptimizerType>
class CoupledTrainer final : public StepTrainer {
 public:
  CoupledTrainer(const StepWork& work, const StepVariant& variant, ProcessGroup group)
      : replica_(work),
        ddp_(replica_.net(), std::move(group), ddp_options(variant, *replica_.net())),
        optimizer_(make_optimizer(ddp_, optimizer_options(work.optimizer),
                                  static_cast<const OptimizerType*>(nullptr))) {}

  void step() override {
    {
      const SpanScope scope("zero gradients", "phase");
      replica_.zero_grad(*optimizer_);
    }
    replica_.backward([this](const torch::Tensor& images) { return ddp_.forward(images); });
    const SpanScope scope("optimizer", "phase");
    optimizer_->step();
  }
  std::vector<Span> spans() override { return ddp_.core().spans("bench"); }
  std::optional<double> exposed_seconds() const override { return ddp_.communication_seconds(); }

 private:
  Replica replica_;
  WrappedNet ddp_;
  std::unique_ptr<OptimizerType> optimizer_;
};

}  // namespace

std::shared_ptr<StepNet> make_step_net(const std::string& model) {
  std::shared_ptr<StepNet> net;
  if (model == "mnist") net = std::make_shared<MnistStepNet>();
  if (model == "resnet18") net = std::make_shared<ResNetStepNet>();
  if (!net) throw ConfigError(lockstep::str("bench step: no model '", model, "'"));
  train::to_channels_last(*net);
  return net;
}

Replica::Replica(const StepWork& work)
    : net_(make_step_net(work.model)),
      precision_(work.precision),
      set_to_none_(work.set_to_none),
      parameters_(net_->parameters()),
      images_(channels_last(net_->make_images(work.batch_per_rank))),
      labels_(net_->make_labels(work.batch_per_rank)) {}

void Replica::backward(const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  torch::Tensor loss;
  {
    const SpanScope scope("forward", "phase");
    const AutocastScope autocast(precision_, torch::kCPU);
    loss = net_->loss(forward(images_), labels_);
  }
  const SpanScope scope("backward", "phase");
  loss.backward();
}

OptimizerOptions optimizer_options(const std::string& name) {
  if (name == "sgd") return SgdOptions{.lr = 0.01, .momentum = 0.5};
  return default_optimizer(name);
}

std::unique_ptr<StepTrainer> make_uncoupled(const StepWork& work) {
  return std::make_unique<UncoupledTrainer>(work, std::nullopt);
}

std::unique_ptr<StepTrainer> make_in_step(const StepWork& work, ProcessGroup group) {
  return std::make_unique<UncoupledTrainer>(work, std::move(group));
}

std::unique_ptr<StepTrainer> make_trainer(const StepWork& work, const StepVariant& variant,
                                          ProcessGroup group) {
  if (variant.strategy == "ddp")
    return std::make_unique<CoupledTrainer<Optimizer>>(work, variant, group);
  if (variant.strategy == "zero1")
    return std::make_unique<CoupledTrainer<ZeroRedundancyOptimizer>>(work, variant, group);
  throw ConfigError(lockstep::str("bench step: no strategy '", variant.strategy, "'"));
}

}  // namespace lockstep::bench
