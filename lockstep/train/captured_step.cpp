#include <lockstep/train/captured_step.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>

namespace lockstep::train {
namespace {

torch::Tensor input_place_for(const torch::Tensor& tensor, torch::Device device) {
  return torch::empty_like(tensor, tensor.options().device(device).pinned_memory(false));
}

void require_same_kind(const char* what, const torch::Tensor& got, const torch::Tensor& place) {
  if (got.sizes() == place.sizes() && got.scalar_type() == place.scalar_type()) return;
  throw ConfigError(lockstep::str(
      "Trainer: cuda_graph needs full batches of one shape and type, but the ", what,
      " of a batch are ", got.scalar_type(), ' ', got.sizes(), ", and those before were ",
      place.scalar_type(), ' ', place.sizes(), "; remove TrainerOptions::cuda_graph"));
}

// CUDA names the capture in errors for operations that it does not permit.
std::string_view advice_for(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  if (text.find("captur") == text.npos && text.find("Captur") == text.npos) {
    return "; remove TrainerOptions::cuda_graph to see whether the step runs without it";
  }
  return "; the task must not wait for the device, as item() does, or remove "
         "TrainerOptions::cuda_graph";
}

}  // namespace

CapturedStep::CapturedStep(std::unique_ptr<detail::StepGraph> graph, std::int64_t parts,
                           std::int64_t batch_size, torch::Device device, Compute compute)
    : graph_(std::move(graph)),
      batch_size_(batch_size),
      device_(device),
      compute_(std::move(compute)),
      batches_(static_cast<std::size_t>(parts)) {}

bool CapturedStep::takes(const Batch& batch) const {
  if (batch.size != batch_size_) return false;
  const Batch& first = batches_.front();
  if (!first.images.defined()) return true;
  require_same_kind("images", batch.images, first.images);
  require_same_kind("labels", batch.labels, first.labels);
  return true;
}

const Batch& CapturedStep::load(std::int64_t part, const Batch& batch) {
  Batch& place = batches_.at(static_cast<std::size_t>(part));
  if (!place.images.defined()) {
    place = {.images = input_place_for(batch.images, device_),
             .labels = input_place_for(batch.labels, device_),
             .size = batch.size};
  }
  // The host must not proceed while the device may still read pinned memory, because the loader
  // refills it. A loader on the run's own device returns no pinned memory.
  place.images.copy_(batch.images, /*non_blocking=*/!batch.images.is_pinned());
  place.labels.copy_(batch.labels, /*non_blocking=*/!batch.labels.is_pinned());
  return place;
}

const std::vector<torch::Tensor>& CapturedStep::run() {
  if (!replays()) {
    graph_->warm_up([&] { losses_ = compute_(batches_); });
  } else {
    if (steps_ == kWarmUpSteps) capture();
    graph_->replay();
  }
  ++steps_;
  return losses_;
}

// Lockstep's own errors already say what cannot be recorded.
void CapturedStep::capture() {
  try {
    graph_->capture([&] {
      const CaptureScope capturing;
      losses_ = compute_(batches_);
    });
  } catch (const c10::OutOfMemoryError& error) {
    throw ConfigError(lockstep::str(
        "Trainer: cuda_graph: the device has too little memory for recording the step: ",
        first_line(error), "; use smaller batches, or remove TrainerOptions::cuda_graph"));
  } catch (const c10::Error& error) {
    throw ConfigError(lockstep::str("Trainer: cuda_graph: the step cannot be recorded: ",
                                    first_line(error), advice_for(error)));
  }
}

}  // namespace lockstep::train
