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

bool are_alike(const torch::Tensor& got, const torch::Tensor& place) {
  if (!got.defined() || !place.defined()) return got.defined() == place.defined();
  return got.sizes() == place.sizes() && got.scalar_type() == place.scalar_type();
}

std::string kind_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return lockstep::str(tensor.scalar_type(), ' ', tensor.sizes());
}

void require_same_kinds(const std::vector<torch::Tensor>& got,
                        const std::vector<torch::Tensor>& places) {
  if (got.size() != places.size()) {
    throw ConfigError(lockstep::str(
        "Trainer: cuda_graph needs full batches of one structure, but a batch has ",
        amount_of(static_cast<std::int64_t>(got.size()), "tensor"), ", and those before had ",
        places.size(), "; remove TrainerOptions::cuda_graph"));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (are_alike(got[i], places[i])) continue;
    throw ConfigError(
        lockstep::str("Trainer: cuda_graph needs full batches of one shape and type, but tensor ",
                      i + 1, " of a batch is ", kind_of(got[i]), ", and those before were ",
                      kind_of(places[i]), "; remove TrainerOptions::cuda_graph"));
  }
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

bool CapturedStep::takes(const LoadedBatch& batch, std::int64_t samples) const {
  if (samples != batch_size_) return false;
  if (batches_.front().frame.has_value()) {
    require_same_kinds(batch.tensors, batches_.front().tensors);
  }
  return true;
}

const LoadedBatch& CapturedStep::load(std::int64_t part, const LoadedBatch& batch) {
  LoadedBatch& place = batches_.at(static_cast<std::size_t>(part));
  if (!place.frame.has_value()) {
    for (const torch::Tensor& tensor : batch.tensors) {
      place.tensors.push_back(tensor.defined() ? input_place_for(tensor, device_) : tensor);
    }
  }
  place.frame = batch.frame;
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const torch::Tensor& tensor = batch.tensors[i];
    if (!tensor.defined()) continue;
    // The host must not proceed while the device may still read pinned memory, because the loader
    // refills it. A loader on the run's own device returns no pinned memory.
    place.tensors[i].copy_(tensor, /*non_blocking=*/!tensor.is_pinned());
  }
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
