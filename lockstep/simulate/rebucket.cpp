#include <lockstep/simulate/rebucket.h>

#include <algorithm>
#include <limits>

namespace lockstep::simulate {
namespace {

// An upper bound for the cap of the run: all buckets but the last have reached the cap, and the
// first has a cap of its own. Infinite if no bucket remains.
double recorded_cap(const std::vector<ProfileBucket>& recorded) {
  double cap = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i + 1 < recorded.size(); ++i) cap = std::min(cap, recorded[i].bytes);
  return cap;
}

// Divides the bucket into equal parameters, whose gradients arrive evenly after `before`.
std::vector<ProfileBucket> divided(const ProfileBucket& bucket, double before) {
  std::vector<ProfileBucket> parameters;
  const auto count = static_cast<double>(bucket.parameters);
  for (std::int64_t i = 1; i <= bucket.parameters; ++i) {
    const double part = static_cast<double>(i) / count;
    parameters.push_back({.bytes = bucket.bytes / count,
                          .ready_seconds = before + (bucket.ready_seconds - before) * part});
  }
  parameters.back().ready_seconds = bucket.ready_seconds;  // without rounding
  return parameters;
}

// The pieces that are not divided further: recorded buckets, or their parameters if the caps are
// smaller than the run's.
std::vector<ProfileBucket> pieces_of(const std::vector<ProfileBucket>& recorded,
                                     const BucketSizes& sizes) {
  const double run_cap = recorded_cap(recorded);
  std::vector<ProfileBucket> pieces;
  double before = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const ProfileBucket& bucket = recorded[i];
    // The first bucket exceeds its cap by up to its last parameter.
    const double cap = i == 0 ? 2 * sizes.first_cap_bytes : sizes.cap_bytes;
    if (bucket.parameters > 1 && bucket.bytes > cap && cap < run_cap / 2) {
      const auto parameters = divided(bucket, before);
      pieces.insert(pieces.end(), parameters.begin(), parameters.end());
    } else {
      pieces.push_back(bucket);
    }
    before = bucket.ready_seconds;
  }
  return pieces;
}

}  // namespace

BucketSizes bucket_sizes(double cap_mb) {
  const double cap = cap_mb * kMebibyte;
  return {.cap_bytes = cap, .first_cap_bytes = std::min(cap, kMebibyte)};
}

std::vector<ProfileBucket> rebucket(const std::vector<ProfileBucket>& recorded,
                                    const BucketSizes& sizes) {
  std::vector<ProfileBucket> buckets;
  ProfileBucket open{.bytes = 0, .ready_seconds = 0, .parameters = 0};
  for (const ProfileBucket& piece : pieces_of(recorded, sizes)) {
    open.bytes += piece.bytes;
    open.ready_seconds = piece.ready_seconds;
    open.parameters += piece.parameters;
    if (open.bytes < (buckets.empty() ? sizes.first_cap_bytes : sizes.cap_bytes)) continue;
    buckets.push_back(open);
    open = {.bytes = 0, .ready_seconds = 0, .parameters = 0};
  }
  if (open.parameters > 0) buckets.push_back(open);
  return buckets;
}

}  // namespace lockstep::simulate
