// The processors that this process may use, and how ranks share them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The processors in this thread's affinity mask, in ascending order: a container's share, not the
/// machine's total.
std::vector<int> available_cpus();

/// The contiguous slice of `cpus` that belongs to `local_rank` of `local_world_size`. Slices are of
/// equal size, except that the first ranks get one more if there is a remainder. With more ranks
/// than processors n, rank r gets processor r mod n.
std::vector<int> cpus_of_rank(const std::vector<int>& cpus, int local_rank, int local_world_size);

/// For ranks with preferred processors: local rank r prefers `near[r]`. Ranks with equal
/// preferences divide these processors; returns the slice of `local_rank`.
std::vector<int> cpus_of_rank(const std::vector<std::vector<int>>& near, int local_rank);

/// Restricts the calling thread, and threads it starts later, to `cpus`. Returns false if the
/// kernel refuses; the run then continues unpinned.
bool pin_to_cpus(const std::vector<int>& cpus);

/// The widest SIMD instruction set of this processor that our kernels use: "AVX-512", "AVX2", ...
std::string simd_name();

/// Model name of the processor according to /proc/cpuinfo; "unknown processor" if there is none.
std::string cpu_model_name();

/// Processor time, in seconds, of all threads of this process, in user space and in the kernel. It
/// includes the time of threads that wait by spinning.
double processor_seconds();

/// Seconds for which the calling thread was ready to run but its processors ran other threads, of
/// this or other programs. Nothing if the kernel does not report it.
std::optional<double> processor_wait_seconds();

/// Processor seconds of all child processes that this process has waited for, and of their
/// descendants that were waited for.
double processor_seconds_of_children();

/// Current memory of this process in bytes. Each page is divided by the number of processes that
/// map it, so that a sum over processes counts shared memory once. 0 if the kernel does not report
/// it.
long long proportional_bytes();

/// Current resident set of this process, in bytes; 0 if /proc is missing.
long long rss_bytes();

/// Largest resident set of this process so far, in bytes.
long long peak_rss_bytes();

}  // namespace lockstep
