// What a prediction goes beyond.
#pragma once

#include <string>
#include <vector>

#include <lockstep/simulate/network.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/simulate/step_profile.h>

namespace lockstep {

/// A sentence for each way in which predictions for these numbers of ranks leave what was measured:
/// a network that was never measured, or with another number of ranks, or with smaller or larger
/// messages than the gradients need, or over which no prediction was ever compared with a
/// measurement; and more compute threads on a host than the run's host has processors. Empty where
/// nothing is extrapolated. One rank alone needs no network.
std::vector<std::string> extrapolations(const StepProfile& profile, const Network& network,
                                        const std::vector<int>& ranks,
                                        const SimulationOptions& options);

}  // namespace lockstep
