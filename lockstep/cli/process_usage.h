// What this process has used of the machine, for the measurements.
#pragma once

namespace lockstep {

/// Seconds that all threads of this process have computed, in user space and in the kernel. A
/// thread that waits by spinning computes.
double processor_seconds();

/// The seconds that processes which this one has started and waited for have computed, with those
/// of their own children.
double processor_seconds_of_children();

/// Bytes that this process occupies now, each page divided by the number of processes that map it;
/// the sum over processes counts what they share once. 0 where the kernel does not tell.
long long proportional_bytes();

}  // namespace lockstep
