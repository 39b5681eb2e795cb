// Redistributes the gradients of a run among buckets of other sizes.
#pragma once

#include <vector>

#include <lockstep/simulate/step_profile.h>

namespace lockstep::simulate {

inline constexpr double kMebibyte = 1 << 20;

/// The sizes at which a bucket is full: DdpOptions::bucket_cap_mb and first_bucket_cap_mb, in
/// bytes.
struct BucketSizes {
  double cap_bytes = 25 * kMebibyte;
  double first_cap_bytes = kMebibyte;
};

/// The sizes of DistributedDataParallel with this bucket_cap_mb: the first bucket holds at most 1
/// MiB.
BucketSizes bucket_sizes(double cap_mb);

/// Fills buckets in the order of the recorded ones by DDP's rule: a bucket is closed when it has
/// reached its cap, and no parameter is divided. A trace records when a bucket was ready, but not
/// its parameters. Recorded buckets therefore stay whole, unless the caps are below half of what
/// the run's caps seem to have been. In that case, a bucket above the cap is treated as the
/// recorded number of equal parameters, whose gradients become ready at even intervals between the
/// previous bucket and this one. Record small buckets for more accuracy. The total number of bytes
/// does not change.
std::vector<ProfileBucket> rebucket(const std::vector<ProfileBucket>& recorded,
                                    const BucketSizes& sizes);

}  // namespace lockstep::simulate
