// Detects predictions that go beyond the measurements.
#pragma once

#include <string>
#include <vector>

#include <lockstep/simulate/network.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/simulate/step_profile.h>

namespace lockstep::simulate {

/// One sentence for each way in which predictions for these numbers of ranks go beyond the
/// measurements: a network that was never measured, that was measured with another number of ranks,
/// or that was measured only with messages smaller or larger than the gradients need; a network for
/// which no prediction was ever compared with a measurement; and more compute threads on a host
/// than the run's host has processors. Empty if nothing is extrapolated. A single rank needs no
/// network.
std::vector<std::string> extrapolations(const StepProfile& profile, const Network& network,
                                        const std::vector<int>& ranks,
                                        const SimulationOptions& options);

}  // namespace lockstep::simulate
