// The step that a profile gives with other ranks, another network and other buckets.
//
// A step waits for its data, computes forward and backward, averages gradients while backward goes
// on, and updates. Each rank has the run's batch (weak scaling), and computes at the run's speed.
// What the model leaves out is in docs/simulate.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/simulate/all_reduce_cost.h>
#include <lockstep/simulate/error_share.h>
#include <lockstep/simulate/network.h>
#include <lockstep/simulate/rebucket.h>
#include <lockstep/simulate/step_profile.h>

namespace lockstep {

struct SimulationOptions {
  std::string strategy = "ddp";    ///< or "zero1"
  std::string algorithm = "auto";  ///< of the all-reduce; all_reduce_names()
  int ranks_per_host = 1;
  std::optional<BucketSizes> buckets{};  ///< absent: those of the profile
  double bytes_factor = 1;               ///< of the gradients that travel: 0.5 for 16 bits
  double speed = 1;                      ///< of the network
  bool communicates = true;
  bool waits_for_data = true;
  bool has_stragglers = true;
  /// zero1 where one copy of the parameters is shared by all ranks of a host (`parameter_memory`
  /// kShared): nothing travels in backward, and each rank reads its share of all gradients in its
  /// update.
  bool shares_parameters = false;
};

/// ConfigError, which begins with `where`, for options that cannot be.
void validate(const SimulationOptions& options, const std::string& where);

struct PredictedStep {
  int ranks = 1;
  double step_seconds = 0;
  SecondsInterval interval{};  ///< around step_seconds, by error_share()
  double efficiency = 1;       ///< step of one rank / this one
  double exposed_seconds = 0;  ///< communication that backward did not hide
  double taken_seconds = 0;    ///< by which transfers made backward longer
  double straggler_seconds = 0;
  std::string algorithm{};  ///< of the largest bucket's all-reduce
  int buckets = 0;
};

/// The buckets in which the gradients travel.
std::vector<ProfileBucket> buckets_of(const StepProfile& profile, const SimulationOptions& options);

/// The profile without what the transfers of its own run took from computing: `run_network` was
/// measured on the run's backend with the run's ranks. Its buckets are ready earlier by what those
/// before them took, and backward is shorter by all but the last bucket's, which ends behind it.
StepProfile without_transfers(const StepProfile& profile, const Network& run_network);

/// The mean of the largest of `ranks` equal normal deviations, in their standard deviations: 0 for
/// one rank (G. Blom, "Statistical estimates and transformed beta-variables", 1958: the quantile at
/// (ranks - 3/8) / (ranks + 1/4)). Ranks that vary by themselves, not one slow rank, wait for each
/// other so.
double expected_largest_deviation(int ranks);

/// `ranks` is at least 1; the others checked by their validate().
PredictedStep predict_step(const StepProfile& profile, const Network& network, int ranks,
                           const SimulationOptions& options);

struct WhatIf {
  std::string name{};  ///< "bf16 gradients"
  PredictedStep step{};
};

/// The step as it is, and with one thing changed at a time: without communication, with ranks that
/// are equally fast, without waiting for data, with other bucket sizes, with gradients of half the
/// size, on a wire of half and of twice the speed, with half and twice as many ranks.
std::vector<WhatIf> what_if(const StepProfile& profile, const Network& network, int ranks,
                            const SimulationOptions& options);

}  // namespace lockstep
