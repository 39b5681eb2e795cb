// A device without hardware, for tests: LibTorch's PrivateUse1, whose memory the host cannot touch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::testing_support::far_device {

/// A process sees that many of them.
inline constexpr int kDevices = 2;

/// Registers the device type for the rest of this process; further calls do nothing. A tensor's
/// data_ptr() is an address that faults when the host reads or writes it, as that of a GPU does.
/// All operators run by LibTorch's kernels for CPUs, on copies. Each stream is a queue, and what is
/// queued there, copies to the device too, is done when somebody waits for it or has asked for it
/// twice. Each piece of work takes a millisecond of the device's time, which events tell. The
/// device becomes LibTorch's accelerator of this process, so that a suite that uses it should not
/// share a process with tests of CPUs.
void install();

/// The far device of that number. Call install() first.
torch::Device device(int index = 0);

/// Blocking copies from devices to the host so far, in the whole process: those of cpu() and item()
/// too, but not those by which this library computes on the host.
std::int64_t blocking_reads();

/// Whatever has made a host thread wait for a device so far, in the whole process, by name and in
/// its order: "item", "copy to the host", "copy from the host" (from memory that is not pinned, or
/// a blocking one), "wait for an event" that had not been reached, "wait for a stream", and
/// operators whose results the host needs, such as "aten::nonzero".
std::vector<std::string> waits();

/// Calls of Tensor::record_stream() so far, in the whole process.
std::int64_t recorded_streams();

/// The current device of the calling thread.
int current_device();

/// A stream of the device of that number that nobody else has.
c10::Stream new_stream(int index = 0);

/// Gives the module's parameters and buffers memory of the far device, where Module::to() cannot:
/// to LibTorch a tensor of the host never becomes one of this type. Call it before any backward.
void move_to(torch::nn::Module& module, torch::Device device);

/// While it lives the devices get nowhere: no event comes to pass, and blocking copies wait.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

}  // namespace lockstep::testing_support::far_device
