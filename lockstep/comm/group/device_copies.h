// Copies between a device's memory and pinned host memory, without blocking the calling thread.
// Everything works on any device type that LibTorch supports; only is_captured() is about CUDA.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep::comm {

using TensorPairs = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

/// Makes `device` the current device of the calling thread, so that later allocations, including
/// pinned memory, create no context on another device. A no-op for a CPU. Throws ConfigError if
/// this process does not see the device.
void set_current_device(torch::Device device);

/// Queues copies that fill each pair's first tensor, in pinned host memory, from its second, on a
/// device. The copies run in a stream of their own, after the work already queued in the current
/// stream, and later work of the current stream does not wait for them. The returned event is
/// complete when all data has arrived; until then the caller keeps the tensors alive.
c10::Event start_copies_to_host(const TensorPairs& copies);

/// Whether work that the calling thread queues on `device` is being captured in a graph instead of
/// executed. During a capture nobody may copy between the device and the host or wait for pending
/// copies.
bool is_captured(torch::Device device);

/// The device to which copy_results() will copy from pinned host memory. Empty if there is none.
std::optional<torch::Device> device_of_results(const TensorPairs& copies);

/// Fills each pair's first tensor from its second. Copies to a device are queued in its current
/// stream, and the returned event completes when they do. Empty if all copies are already complete.
std::optional<c10::Event> copy_results(const TensorPairs& copies);

}  // namespace lockstep::comm
