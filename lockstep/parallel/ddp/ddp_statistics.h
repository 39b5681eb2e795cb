// What the communication of DistributedDataParallel cost, in numbers and as a timeline.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/grad_bucket.h>
#include <lockstep/parallel/ddp/step_recorder.h>
#include <lockstep/trace/span.h>

namespace lockstep {

/// Times are medians over the measured steps of this rank, in milliseconds since the first gradient
/// of a backward: on a device those at which it did the work.
struct BucketStatistics {
  std::size_t index = 0;  ///< in the order of reduction
  std::size_t parameters = 0;
  std::int64_t bytes = 0;  ///< of gradients; 0: sparse, which differ from step to step
  std::string dtype{};
  double ready_ms = 0;  ///< its last gradient was there
  double start_ms = 0;  ///< its reduction began: after those of the buckets before it
  double end_ms = 0;    ///< this rank saw its end
};

struct RankStatistics {
  int rank = 0;
  /// From the end of one reduction to the last gradient of the next backward: what the rank did by
  /// itself. Median, in milliseconds.
  double compute_ms = 0;
  /// How much longer the slowest rank needed for that, step by step. Mean, in milliseconds.
  double wait_ms = 0;
};

struct DdpStatistics {
  std::int64_t steps = 0;     ///< backwards that communicated, since construction
  std::int64_t measured = 0;  ///< the last of them, since the buckets were rebuilt; at most 127
  bool rebuilt = false;       ///< the buckets follow the order in which gradients arrived
  // Medians over the measured steps of this rank, in milliseconds:
  double backward_ms = 0;       ///< first gradient to last
  double communication_ms = 0;  ///< while any bucket was under way: hidden and exposed
  double hidden_ms = 0;         ///< of it, while backward still computed
  double exposed_ms = 0;        ///< after the last gradient: what the step waited for
  double skew_ms = 0;           ///< between the fastest and the slowest rank's compute_ms
  std::vector<BucketStatistics> buckets{};
  std::vector<RankStatistics> ranks{};
};

/// Collective over `group`.
DdpStatistics summarize(const std::vector<GradBucket>& buckets, const StepRecorder& times,
                        ProcessGroup& group);

/// A table for people, several lines with a newline each.
std::string to_table(const DdpStatistics& statistics);

/// The measured steps of this rank: its computing, its backward, and each bucket's waiting for its
/// turn and being under way. Reductions match those of the other ranks of one group; `group_name`
/// tells groups apart (see Span::collective).
std::vector<Span> ddp_spans(const std::vector<GradBucket>& buckets, const StepRecorder& times,
                            const std::string& group_name);

/// Collective over `group`. Rank 0 writes the measured steps of all ranks as a trace that Perfetto
/// and chrome://tracing show (ddp_spans(), write_trace_of_ranks()). DataError, on all ranks, where
/// the file can't be written.
void write_ddp_trace(const std::filesystem::path& path, const std::vector<GradBucket>& buckets,
                     const StepRecorder& times, ProcessGroup& group);

}  // namespace lockstep
