// Runs an optimizer of the program's own. Internal to lockstep/train.
#pragma once

#include <memory>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/train/optimization/run_optimizer.h>
#include <lockstep/train/task/optimizer_configuration.h>

namespace lockstep::train {

/// An optimizer that `make` makes of `parameters`, the same on each rank of `group`. The group can
/// send from `device`.
std::unique_ptr<RunOptimizer> run_own_optimizer(const NamedTensors& parameters,
                                                const MakeOwnOptimizer& make, ProcessGroup group,
                                                torch::Device device);

}  // namespace lockstep::train
