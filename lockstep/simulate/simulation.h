// Predicts the step of a profile with other ranks, another network and other buckets.
//
// A step waits for its data, computes forward and backward, averages gradients during backward, and
// updates. Each rank keeps the run's batch size (weak scaling) and computes at the run's speed.
// docs/simulate.md lists what the model leaves out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/simulate/all_reduce_cost.h>
#include <lockstep/simulate/error_share.h>
#include <lockstep/simulate/network.h>
#include <lockstep/simulate/rebucket.h>
#include <lockstep/simulate/step_profile.h>

namespace lockstep::simulate {

/// The strategies whose steps can be predicted.
const std::vector<std::string>& simulated_strategy_names();

inline constexpr int kMostRanksPerHost = 1024;

struct SimulationOptions {
  std::string strategy = "ddp";    ///< one of simulated_strategy_names()
  std::string algorithm = "auto";  ///< algorithm of the all-reduce; all_reduce_names()
  int ranks_per_host = 1;
  std::optional<BucketSizes> buckets{};  ///< empty: the buckets of the profile
  double bytes_factor = 1;               ///< scales the gradients' bytes: 0.5 for 16 bits
  double speed = 1;                      ///< speed factor of the network
  bool communicates = true;
  bool waits_for_data = true;
  bool has_stragglers = true;
  /// zero1 with one copy of the parameters shared by all ranks of a host (`parameter_memory`
  /// kShared): nothing travels in backward, each rank reads its share of all gradients in its
  /// update, and only hosts gather parameters, from each other.
  bool shares_parameters = false;
};

/// Throws a ConfigError that begins with `where` for invalid options.
void validate(const SimulationOptions& options, const std::string& where);

struct PredictedStep {
  int ranks = 1;
  double step_seconds = 0;
  SecondsInterval interval{};  ///< around step_seconds, by error_share()
  double efficiency = 1;       ///< step of one rank / this step
  double exposed_seconds = 0;  ///< communication that backward did not hide
  double taken_seconds = 0;    ///< time that transfers added to backward
  double straggler_seconds = 0;
  std::string algorithm{};  ///< algorithm of the largest bucket's all-reduce
  /// How this prediction goes beyond the measurements, by extrapolations(); empty if it does not.
  std::vector<std::string> extrapolations{};
  int buckets = 0;
};

/// The buckets in which the gradients travel.
std::vector<ProfileBucket> buckets_of(const StepProfile& profile, const SimulationOptions& options);

/// The profile without the time by which the run's own transfers slowed its computing.
/// `run_network` was measured on the run's backend with the run's number of ranks. Each bucket is
/// ready earlier by the time that the buckets before it took. Backward is shorter by the time of
/// all but the last bucket, which ends after backward.
StepProfile without_transfers(const StepProfile& profile, const Network& run_network);

/// The expected largest of `ranks` independent, equal normal deviations, in standard deviations: 0
/// for one rank (G. Blom, "Statistical estimates and transformed beta-variables", 1958: the
/// quantile at (ranks - 3/8) / (ranks + 1/4)). This models ranks that wait for each other and whose
/// times vary independently, not a rank that is always slow.
double expected_largest_deviation(int ranks);

/// Predicts one step. `ranks` must be at least 1; the other arguments must have passed their
/// validate().
PredictedStep predict_step(const StepProfile& profile, const Network& network, int ranks,
                           const SimulationOptions& options);

struct WhatIf {
  std::string name{};  ///< "bf16 gradients"
  PredictedStep step{};
};

/// The step as it is, and with one change at a time: without communication, with equally fast
/// ranks, without waiting for data, with other bucket sizes, with gradients of half the size, on a
/// wire of half and of twice the speed, and with half and twice the number of ranks.
std::vector<WhatIf> what_if(const StepProfile& profile, const Network& network, int ranks,
                            const SimulationOptions& options);

}  // namespace lockstep::simulate
