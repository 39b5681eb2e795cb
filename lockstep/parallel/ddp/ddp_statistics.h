// The cost of DistributedDataParallel's communication, in numbers and as a timeline.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/core/trace/span.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Times are medians over the measured steps of this rank, in milliseconds since the first gradient
/// of a backward. On a device, they are the times at which the device did the work.
struct LOCKSTEP_API BucketStatistics {
  std::size_t index = 0;  ///< in the order of reduction
  std::size_t parameters = 0;
  std::int64_t bytes = 0;  ///< bytes of gradients; 0 for sparse ones, whose size varies
  std::string dtype{};
  double ready_ms = 0;  ///< when its last gradient arrived
  double start_ms = 0;  ///< when its reduction began, after those of earlier buckets
  double end_ms = 0;    ///< when this rank saw its reduction complete
};

struct LOCKSTEP_API RankStatistics {
  int rank = 0;
  /// The rank's local work: from the end of one reduction to the last gradient of the next
  /// backward. Median, in milliseconds.
  double compute_ms = 0;
  /// How much longer the slowest rank took for its local work, averaged over steps, in
  /// milliseconds.
  double wait_ms = 0;
};

struct LOCKSTEP_API DdpStatistics {
  std::int64_t steps = 0;     ///< backwards that communicated, since construction
  std::int64_t measured = 0;  ///< steps measured: the latest since the last rebuild, at most 127
  bool rebuilt = false;       ///< the buckets follow the order in which gradients arrived
  // Medians over the measured steps of this rank, in milliseconds:
  double backward_ms = 0;       ///< first gradient to last
  double communication_ms = 0;  ///< while any bucket was in progress: hidden and exposed
  double hidden_ms = 0;         ///< the part during which backward still computed
  double exposed_ms = 0;        ///< after the last gradient: the part that delayed the step
  double skew_ms = 0;           ///< between the fastest and the slowest rank's compute_ms
  std::vector<BucketStatistics> buckets{};
  std::vector<RankStatistics> ranks{};
};

/// A human-readable table of several lines, each ending in a newline.
LOCKSTEP_API std::string to_table(const DdpStatistics& statistics);

}  // namespace lockstep

namespace lockstep::detail {

class StepRecorder;

/// Collective over `group`. `ranks` and `skew_ms` cover all its ranks, the rest only this rank.
LOCKSTEP_API DdpStatistics summarize(const std::vector<GradBucket>& buckets,
                                     const StepRecorder& times, ProcessGroup& group);

/// The measured steps of this rank: its computation, its backward, and for each bucket the time
/// queued and the time in progress. A reduction's spans match across the ranks of a group;
/// `group_name` distinguishes groups (see Span::collective).
LOCKSTEP_API std::vector<Span> ddp_spans(const std::vector<GradBucket>& buckets,
                                         const StepRecorder& times, const std::string& group_name);

/// Collective over `group`. Rank 0 writes the measured steps of all ranks as a trace for Perfetto
/// and chrome://tracing (ddp_spans(), write_trace_of_ranks()). Throws DataError, on all ranks, if
/// the file cannot be written.
LOCKSTEP_API void write_ddp_trace(const std::filesystem::path& path,
                                  const std::vector<GradBucket>& buckets, const StepRecorder& times,
                                  ProcessGroup& group);

}  // namespace lockstep::detail
