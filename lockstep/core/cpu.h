// The processors that this process may use, and how ranks share them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The processors in this thread's affinity mask, in ascending order: a container's share, not the
/// machine's total.
std::vector<int> available_cpus();

/// The slice of `cpus` that belongs to `local_rank` of `local_world_size`: contiguous, of equal
/// size, the remainder going to the first ranks. With more ranks than processors, rank r gets
/// processor r mod n.
std::vector<int> cpus_of_rank(const std::vector<int>& cpus, int local_rank, int local_world_size);

/// For ranks that each have preferred processors, `near[r]` for local rank r: the slice of
/// `near[local_rank]`, which ranks with equal preferences divide.
std::vector<int> cpus_of_rank(const std::vector<std::vector<int>>& near, int local_rank);

/// Restricts the calling thread, and threads it starts later, to `cpus`. Returns false if the
/// kernel refuses; the run then continues unpinned.
bool pin_to_cpus(const std::vector<int>& cpus);

/// The widest SIMD instruction set of this processor that our kernels use: "AVX-512", "AVX2", ...
std::string simd_name();

/// Model name of the processor according to /proc/cpuinfo; "unknown processor" if there is none.
std::string cpu_model_name();

/// Processor time of all threads of this process, in seconds, in user space and in the kernel. It
/// includes threads that wait by spinning.
double processor_seconds();

/// Seconds for which the calling thread was ready to run while other threads, of this or other
/// programs, had its processors. Nothing if the kernel does not report it.
std::optional<double> processor_wait_seconds();

/// Processor seconds of all child processes that this process has waited for, and of their
/// descendants that were waited for.
double processor_seconds_of_children();

/// Current memory of this process in bytes, where each page is divided by the number of processes
/// that map it: the sum over processes counts shared memory once. 0 if the kernel does not report
/// it.
long long proportional_bytes();

/// Current resident set of this process, in bytes; 0 if /proc is missing.
long long rss_bytes();

/// Largest resident set of this process so far, in bytes.
long long peak_rss_bytes();

}  // namespace lockstep
