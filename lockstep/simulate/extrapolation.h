// Detects predictions that go beyond the measurements.
#pragma once

#include <string>
#include <vector>

#include <lockstep/simulate/network.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/simulate/step_profile.h>

namespace lockstep::simulate {

/// One sentence for each way in which predictions for these numbers of ranks go beyond the
/// measurements: a network that was never measured, or only with another number of ranks, another
/// algorithm, at another speed, without a collective that the strategy needs, or with smaller or
/// larger messages than it needs; a network for which no prediction was ever compared with a
/// measurement; more ranks that wait for the slowest than the run had; and more compute threads on
/// a host than the run's host has processors. Empty if nothing is extrapolated. A single rank, and
/// a step without communication, need no network.
std::vector<std::string> extrapolations(const StepProfile& profile, const Network& network,
                                        const std::vector<int>& ranks,
                                        const SimulationOptions& options);

}  // namespace lockstep::simulate
