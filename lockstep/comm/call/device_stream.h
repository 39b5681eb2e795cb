// The order of work in the streams of a device, of any type that LibTorch supports.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

namespace lockstep::comm {

/// The calling thread's current stream of a device.
c10::Stream current_stream(torch::Device device);

/// An event that marks the work queued in the device's current stream at the time of the call.
c10::Event mark_stream(torch::Device device);

/// Makes the current stream of the event's device, on the calling thread, wait for the event.
void let_stream_wait(const c10::Event& event);

/// Tells the allocator that the current stream of the tensor's device uses its memory, so that the
/// memory is not reused before the stream has finished with it, even if the tensor is freed at
/// once. A no-op for a tensor on the host.
void record_current_stream(const torch::Tensor& tensor);

}  // namespace lockstep::comm
