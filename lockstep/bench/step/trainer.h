// The work that `lockstep bench step` times: training a net repeatedly on one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/bench/step/settings.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/trace/span.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::bench {

/// A net of any type, in channels-last as in the recipes.
class StepNet : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;
  /// Random images, float32 [batch, C, H, W], and random labels, int64 [batch].
  virtual torch::Tensor make_images(std::int64_t batch) const = 0;
  virtual torch::Tensor make_labels(std::int64_t batch) const = 0;
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const = 0;
};

/// `model` is "mnist" or "resnet18" (with the stem for 32x32 images). Throws ConfigError otherwise.
std::shared_ptr<StepNet> make_step_net(const std::string& model);

/// Trains one replica. A step ends with the optimizer's step. Not thread-safe.
class StepTrainer {
 public:
  virtual ~StepTrainer() = default;
  /// Collective if the ranks are coupled.
  virtual void step() = 0;
  /// Seconds, since construction, that backward waited at its end for communication; nothing if
  /// unknown.
  virtual std::optional<double> exposed_seconds() const { return std::nullopt; }
  /// Spans of the latest steps that SpanScope does not record.
  virtual std::vector<Span> spans() { return {}; }
};

struct StepWork {
  std::string model;
  std::int64_t batch_per_rank = 0;
  Precision precision = Precision::k32;
  std::string optimizer = "sgd";
  bool set_to_none = false;
};

/// The common part of all trainers: a replica and its batch.
class Replica {
 public:
  explicit Replica(const StepWork& work);

  /// Zeroes the gradients with `optimizer`, or sets them to undefined if StepWork::set_to_none.
  template <class Optimizer>
  void zero_grad(Optimizer& optimizer) {
    if (!set_to_none_) return optimizer.zero_grad();
    for (const auto& parameter : parameters_) parameter.mutable_grad().reset();
  }
  /// `forward` maps images to the net's output.
  void backward(const std::function<torch::Tensor(const torch::Tensor&)>& forward);

  const std::shared_ptr<StepNet>& net() const { return net_; }

 private:
  std::shared_ptr<StepNet> net_;
  Precision precision_;
  bool set_to_none_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor images_, labels_;
};

/// The options of the optimizer `name`, with momentum if it supports that.
OptimizerOptions optimizer_options(const std::string& name);

/// The two baselines. make_uncoupled() trains without any communication. With make_in_step(), ranks
/// wait for each other once per step, after the backward, by exchanging one number; it shows what
/// ranks of unequal speed lose, however little they communicate.
std::unique_ptr<StepTrainer> make_uncoupled(const StepWork& work);
std::unique_ptr<StepTrainer> make_in_step(const StepWork& work, ProcessGroup group);
/// Collective.
std::unique_ptr<StepTrainer> make_trainer(const StepWork& work, const StepVariant& variant,
                                          ProcessGroup group);

}  // namespace lockstep::bench
