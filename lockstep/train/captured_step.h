// Records one step of a run and replays it for all later steps. Internal to lockstep/train.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/train/step_graph.h>

namespace lockstep::train {

/// The batches of full steps, which all have one shape, are copied to the memory from which the
/// recorded step reads them. The first steps run unrecorded and prepare what is created lazily: the
/// order of the buckets, the optimizer's flat tensors, the libraries' memory. Use it on one thread
/// only.
class CapturedStep {
 public:
  /// Steps that run before one is recorded. The first step fixes the order of the reducer's buckets
  /// and cuDNN's algorithms, the second one creates the optimizer's flat tensors, and the third one
  /// already runs like every later step.
  static constexpr std::int64_t kWarmUpSteps = 3;

  /// Computes a step of these batches and returns the loss of each, tensors of one element.
  using Compute =
      std::function<std::vector<torch::Tensor>(const std::vector<LoadedBatch>& batches)>;

  /// A full step has `parts` batches of `batch_size` samples, which load() copies to `device`.
  CapturedStep(std::unique_ptr<detail::StepGraph> graph, std::int64_t parts,
               std::int64_t batch_size, torch::Device device, Compute compute);

  /// Whether `batch`, of `samples` samples, is a full batch, which load() accepts. Throws
  /// ConfigError for a full batch whose tensors' number, shapes or types differ from those of
  /// earlier batches.
  bool takes(const LoadedBatch& batch, std::int64_t samples) const;
  /// Copies `batch` to its place in the next step, and returns the copy.
  const LoadedBatch& load(std::int64_t part, const LoadedBatch& batch);

  /// Whether run() will replay the recorded step, recording it first if necessary.
  bool replays() const { return steps_ >= kWarmUpSteps; }
  /// Runs a step on the loaded batches and returns the loss of each; the next run() overwrites the
  /// losses. Throws ConfigError if the step cannot be recorded.
  const std::vector<torch::Tensor>& run();

 private:
  void capture();

  const std::unique_ptr<detail::StepGraph> graph_;
  const std::int64_t batch_size_;
  const torch::Device device_;
  const Compute compute_;
  std::vector<LoadedBatch> batches_;  // by part; in fixed memory once loaded
  std::int64_t steps_ = 0;            // steps that have run
  std::vector<torch::Tensor> losses_;
};

}  // namespace lockstep::train
