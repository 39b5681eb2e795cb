// The processors that this process may use, and how ranks share them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The processors in this thread's affinity mask, in ascending order (a container's share, not the
/// machine's total).
std::vector<int> available_cpus();

/// The slice of `cpus` that belongs to `local_rank` of `local_world_size`: contiguous, of equal
/// size, the remainder going to the first ranks. With more ranks than processors, rank r gets
/// processor r mod n.
std::vector<int> cpus_of_rank(const std::vector<int>& cpus, int local_rank, int local_world_size);

/// Restricts the calling thread, and threads it starts later, to `cpus`. Returns false where the
/// kernel refuses (the run goes on unpinned).
bool pin_to_cpus(const std::vector<int>& cpus);

/// The widest SIMD instruction set of this processor that our kernels use: "AVX-512", "AVX2", ...
std::string simd_name();

/// Model name of the processor, as /proc/cpuinfo has it; "unknown processor" elsewhere.
std::string cpu_model_name();

/// Seconds that all threads of this process have computed, in user space and in the kernel. A
/// thread that waits by spinning computes.
double processor_seconds();

/// Seconds for which the calling thread was ready to run while other threads, of this program or of
/// others, had its processors. Nothing where the kernel does not tell.
std::optional<double> processor_wait_seconds();

/// The processor seconds of all processes that this one has started and waited for, and of those
/// that they have started and waited for.
double processor_seconds_of_children();

/// Bytes that this process occupies now, each page divided by the number of processes that map it;
/// the sum over processes counts what they share once. 0 where the kernel does not tell.
long long proportional_bytes();

/// What this process holds in memory now, in bytes; 0 where /proc is missing.
long long rss_bytes();

/// Largest resident set of this process so far, in bytes.
long long peak_rss_bytes();

}  // namespace lockstep
