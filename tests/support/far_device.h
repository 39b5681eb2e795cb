// A device without hardware, for tests: LibTorch's PrivateUse1, whose memory the host cannot touch.
#pragma once

#include <cstdint>

#include <torch/types.h>

namespace lockstep::testing_support::far_device {

/// A process sees that many of them.
inline constexpr int kDevices = 2;

/// Registers the device type for the rest of this process; further calls do nothing. A tensor's
/// data_ptr() is an address that faults when the host reads or writes it, as that of a GPU does.
/// All operators run by LibTorch's kernels for CPUs, on copies. Each stream is a queue, and what is
/// queued there, copies to the device too, is done when somebody waits for it or has asked for it
/// twice.
/// Convolutions are not supported. The device becomes LibTorch's accelerator of this process, so
/// that a suite that uses it should not share a process with tests of CPUs.
void install();

/// The far device of that number. Call install() first.
torch::Device device(int index = 0);

/// Blocking copies from devices to the host so far, in the whole process: those of cpu() and item()
/// too, but not those by which this library computes on the host.
std::int64_t blocking_reads();

/// The current device of the calling thread.
int current_device();

/// While it lives the devices get nowhere: no event comes to pass, and blocking copies wait.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

}  // namespace lockstep::testing_support::far_device
