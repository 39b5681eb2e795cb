// The parts of a training step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::simulate {

/// Maximum number of parameters in a bucket. It is limited because rebucket() makes a bucket of
/// each parameter if caps are small.
inline constexpr std::int64_t kMostBucketParameters = 1'000'000;

/// Gradients that travel together.
struct ProfileBucket {
  double bytes = 0;
  /// The time when its last gradient is ready: seconds of computing since backward began.
  double ready_seconds = 0;
  std::int64_t parameters = 1;  ///< a parameter cannot be divided
};

/// A step of one rank without its communication. Its times hold for the processors and the batch
/// size of the run from which they come.
struct StepProfile {
  std::string name{};      ///< name of the recipe or model
  std::string strategy{};  ///< strategy of the run: "ddp", in which each rank does the whole update
  std::string backend{};   ///< the wire of the run; empty: the profile does not come from a run
  int ranks = 1;           ///< number of ranks of the run
  std::int64_t batch_per_rank = 0;
  std::int64_t processors =
      0;  ///< processors of the run's host, if the run computes on them; 0: unknown
  std::int64_t threads_per_rank = 1;
  std::int64_t steps = 0;  ///< number of measured steps; 0: the profile does not come from a run

  double data_seconds = 0;     ///< waiting for the next batch
  double forward_seconds = 0;  ///< from the batch's arrival to the beginning of backward
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  double other_seconds = 0;  ///< the rest of the step
  /// How much longer the slowest rank takes than the mean of the `ranks` ranks.
  double straggler_seconds = 0;
  std::vector<ProfileBucket> buckets{};  ///< in the order in which they are reduced

  // Measurements of the run itself, for comparison; 0 if the profile does not come from a run.
  double step_seconds = 0;
  double step_low_seconds = 0;  ///< the quartiles of its steps
  double step_high_seconds = 0;
  double exposed_seconds = 0;  ///< communication and waiting that backward did not hide

  double bytes() const;
  /// The duration of a step that waits for no other rank.
  double compute_seconds() const;
};

/// Throws a ConfigError that begins with `where` if the strategy is not ddp, if a time or size is
/// negative, if there is no bucket, if a bucket is ready after backward's end or before an earlier
/// bucket, or if a bucket has more than kMostBucketParameters parameters or more parameters than
/// bytes.
void validate(const StepProfile& profile, const std::string& where);

/// Reads a profile from a JSON object as written by to_json(); missing members get the defaults of
/// StepProfile. Throws a DataError if the file is not such an object.
StepProfile read_step_profile(const std::filesystem::path& file);

/// {"name", "strategy", "backend", "ranks", "batch_per_rank", "processors", "threads_per_rank",
/// "steps", "data_seconds", ...,
/// "buckets": [{"bytes", "ready_seconds", "parameters"}]}.
std::string to_json(const StepProfile& profile);

}  // namespace lockstep::simulate
