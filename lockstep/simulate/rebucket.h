// Gradients in other buckets than those of the run.
#pragma once

#include <vector>

#include <lockstep/simulate/step_profile.h>

namespace lockstep {

inline constexpr double kMebibyte = 1 << 20;

/// When a bucket is full: DdpOptions::bucket_cap_mb and first_bucket_cap_mb, in bytes.
struct BucketSizes {
  double cap_bytes = 25 * kMebibyte;
  double first_cap_bytes = kMebibyte;
};

/// The sizes of DistributedDataParallel with this bucket_cap_mb: the first bucket holds 1 MiB at
/// most.
BucketSizes bucket_sizes(double cap_mb);

/// Fills buckets in the order of the recorded ones by DDP's rule: one is closed when it has reached
/// its cap, and no parameter is divided. A trace tells when a bucket was ready, not its parameters.
/// Recorded buckets stay together, unless the caps are below half of what the run's seem to be:
/// then those above the cap are taken for as many equal parameters whose gradients arrive evenly
/// between the bucket before and this one. Record small buckets to know better. All bytes stay.
std::vector<ProfileBucket> rebucket(const std::vector<ProfileBucket>& recorded,
                                    const BucketSizes& sizes);

}  // namespace lockstep
