// Runs a trained network on images, as the evaluation of its training did.
//
//   ModelRun run(model, images, model.recipe.test_augmentation, arguments, device);
//   for (ModelBatch batch; run.next(batch);) use(batch.output);
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>
#include <CLI/CLI.hpp>

#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {

/// The options as given by the user.
struct ComputeArguments {
  std::string accelerator = "auto";
  std::optional<std::int64_t> batch_size;
  int threads = 0;  ///< 0: one for each processor
  int workers = 1;  ///< threads that read images
};

/// Adds --accelerator, --batch-size, --threads and --workers to `command`; `to` must outlive the
/// parsing.
void add_compute_options(CLI::App& command, ComputeArguments& to);

/// Checks the options and sets this process's number of compute threads. Returns the device. Throws
/// ConfigError, which begins with `command`.
torch::Device resolve_compute(const std::string& command, const ComputeArguments& arguments);

/// How the evaluations of the run loaded their batches, except for the threads. The images have the
/// type that the run's precision rounds them to.
LoaderOptions loading_of_run(const TrainedModel& model, const ComputeArguments& arguments,
                             torch::Device device);

/// The precision in which the evaluations of the run computed.
Precision precision_of_run(const TrainedModel& model);

/// Moves the model to `device`, in eval mode and in the memory format of the run.
void prepare_module(const TrainedModel& model, torch::Device device);

/// The images of a batch that could be read.
struct ModelBatch {
  std::vector<std::int64_t> indices;  ///< in the data set
  std::vector<std::string> files;     ///< paths of the images; empty for images in memory
  torch::Tensor images;               ///< prepared, on the device
  torch::Tensor labels;               ///< int64, on the device
  torch::Tensor output;               ///< the network's

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
  Batch samples() const { return {.images = images, .labels = labels, .size = size()}; }
};

/// The loss of each image of the batch.
std::vector<double> sample_losses(const TrainedModel& model, const ModelBatch& batch);

/// A batch without its output, on the CPU.
struct PreparedImages {
  ModelBatch batch;
  std::vector<CorruptImage> unreadable;
  std::int64_t count = 0;  ///< number of images, including unreadable ones
};

/// Reads the images in their order, on threads and one batch ahead, and computes the outputs in
/// eval mode. Images, precision, memory format and, unless another one is given, the size of a
/// batch are those of the run's evaluations, so that the outputs are equal, too. Not thread-safe.
class ModelRun {
 public:
  /// Moves the model to `device`; it must outlive this object. Throws ConfigError if the operators
  /// do not fit the images.
  ModelRun(const TrainedModel& model, ImageDataset images, const Augmentation& operators,
           const ComputeArguments& arguments, torch::Device device);
  ModelRun(const ModelRun&) = delete;
  ModelRun& operator=(const ModelRun&) = delete;

  /// Computes the next batch that has a readable image; false at the end. Throws CheckpointError if
  /// the number of outputs is not that of the model's classes.
  bool next(ModelBatch& batch);

  /// The number of images so far, including unreadable ones.
  std::int64_t done() const { return done_; }
  /// The images so far that could not be read, in their order.
  const std::vector<CorruptImage>& unreadable() const { return unreadable_; }

 private:
  PreparedImages prepare(std::int64_t first) const;
  void start_next();
  void compute(ModelBatch& batch) const;

  const TrainedModel& model_;
  const ImageDataset dataset_;
  const Precision precision_;
  const torch::Device device_;
  const int workers_;
  const LoaderOptions memory_;  // describes the memory of a batch
  const data::AugmentationPlan plan_;
  std::int64_t done_ = 0;
  std::vector<CorruptImage> unreadable_;
  std::future<PreparedImages> next_;  // the last member: its thread uses the others
};

}  // namespace lockstep::cli
