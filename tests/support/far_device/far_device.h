// A simulated device for tests: LibTorch's PrivateUse1, with memory that the host cannot access.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::testing_support::far_device {

/// The number of far devices that a process sees.
inline constexpr int kDevices = 2;

/// Registers the device type for the rest of this process. Later calls are no-ops. A tensor's
/// data_ptr() is an address that faults when the host accesses it, as on a GPU. Operators run on
/// copies, with LibTorch's CPU kernels. Each stream is a queue. Its work, including copies to the
/// device, runs when a thread waits for it or has queried it twice. Each piece of work takes one
/// millisecond of device time, as measured by events. The device becomes LibTorch's accelerator of
/// this process, so a suite that uses it should not share a process with tests of CPUs.
void install();

/// The far device number `index`. install() must be called first.
torch::Device device(int index = 0);

/// The number of blocking copies from devices to the host so far, in the whole process. Includes
/// those of cpu() and item(), but not the copies on which operators run.
std::int64_t blocking_reads();

/// The names of all operations that have made a host thread of this process wait for a device so
/// far, in order: "item", "copy to the host", "copy from the host" (a blocking one, or from memory
/// that is not pinned), "wait for an event" that had not been reached, "wait for a stream", and
/// operators that return results to the host, such as "aten::nonzero".
std::vector<std::string> waits();

/// The number of calls of Tensor::record_stream() so far, in the whole process.
std::int64_t recorded_streams();

/// The current device of the calling thread.
int current_device();

/// A new stream of device `index`, which no other code uses.
c10::Stream new_stream(int index = 0);

/// Moves the module's parameters and buffers to the far device. Module::to() cannot do this,
/// because LibTorch does not let a host tensor become one of this type. Must be called before any
/// backward pass.
void move_to(torch::nn::Module& module, torch::Device device);

/// Stops all far devices during its lifetime: no event completes, and blocking copies wait.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

}  // namespace lockstep::testing_support::far_device
