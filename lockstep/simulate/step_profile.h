// What a training step consists of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The most parameters of a bucket, since rebucket() makes a bucket of each where caps are small.
inline constexpr std::int64_t kMostBucketParameters = 1'000'000;

/// Gradients that travel together.
struct ProfileBucket {
  double bytes = 0;
  /// When its last gradient is there: seconds of computing since backward began.
  double ready_seconds = 0;
  std::int64_t parameters = 1;  ///< one cannot be divided
};

/// A step of one rank without its communication. Its times are those of the processors and batch of
/// the run that they come from.
struct StepProfile {
  std::string name{};      ///< of the recipe or model
  std::string strategy{};  ///< of the run: "ddp", which has the whole update
  std::string backend{};   ///< the wire of the run; empty: the profile is no run's
  int ranks = 1;           ///< of the run
  std::int64_t batch_per_rank = 0;
  std::int64_t processors = 0;  ///< of the run's host, where they compute; 0: not known
  std::int64_t threads_per_rank = 1;
  std::int64_t steps = 0;  ///< that were measured; 0: the profile is no run's

  double data_seconds = 0;     ///< waiting for the next batch
  double forward_seconds = 0;  ///< from there to the beginning of backward
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  double other_seconds = 0;  ///< what lies between these
  /// How much longer the slowest of `ranks` ranks needs than the mean of them.
  double straggler_seconds = 0;
  std::vector<ProfileBucket> buckets{};  ///< in the order in which they are reduced

  // What the run itself measured, to compare with; 0 where the profile is no run's.
  double step_seconds = 0;
  double step_low_seconds = 0;  ///< the quartiles of its steps
  double step_high_seconds = 0;
  double exposed_seconds = 0;  ///< communication and waiting that backward did not hide

  double bytes() const;
  /// A step that waits for nobody.
  double compute_seconds() const;
};

/// ConfigError, which begins with `where`, for times and sizes that cannot be: negative ones, no
/// bucket, buckets that are ready behind backward's end or before those before them, more than
/// kMostBucketParameters or more parameters than bytes in one; and for another strategy than ddp.
void validate(const StepProfile& profile, const std::string& where);

/// Reads a profile from a JSON object as to_json() writes it; members that are missing have the
/// values of a StepProfile. DataError for another file.
StepProfile read_step_profile(const std::filesystem::path& file);

/// {"name", "strategy", "backend", "ranks", "batch_per_rank", "processors", "threads_per_rank",
/// "steps", "data_seconds", ...,
/// "buckets": [{"bytes", "ready_seconds", "parameters"}]}.
std::string to_json(const StepProfile& profile);

}  // namespace lockstep
