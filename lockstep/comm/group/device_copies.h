// Copies between a device's memory and pinned host memory that do not block the calling thread.
// Everything here works on any type of device that LibTorch knows: nothing names CUDA.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep {

using TensorPairs = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

/// Makes `device` the current one of the calling thread, so that what it allocates later, pinned
/// memory too, creates no context on another. Does nothing for a CPU. ConfigError where this
/// process sees no such device.
void set_current_device(torch::Device device);

/// Queues copies that fill each first tensor, in pinned host memory, from its second, on a device,
/// behind what the current stream holds and in a stream of their own, so that later work of the
/// current stream does not wait for them. The result is complete when all have arrived; until then
/// the caller holds the tensors.
c10::Event start_copies_to_host(const TensorPairs& copies);

/// Whether what the calling thread gives to `device` is being captured in a graph instead of
/// executed: then nobody may copy between it and the host, nor wait for what is under way there.
bool is_captured(torch::Device device);

/// The device whose current stream will hold these copies for copy_results(). Nothing if all are
/// done at once.
std::optional<torch::Device> device_of_results(const TensorPairs& copies);

/// What the current stream of the device holds when it is called.
c10::Event mark_stream(torch::Device device);

/// Fills each first tensor from its second. Copies from pinned memory to a device are queued in the
/// current stream; the result is complete when they are. Nothing where all were done at once.
std::optional<c10::Event> copy_results(const TensorPairs& copies);

/// Makes the calling thread's current stream of the event's device wait for it.
void let_stream_wait(const c10::Event& event);

}  // namespace lockstep
