// The work of each rank of `lockstep bench step`.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <lockstep/bench/step/settings.h>
#include <lockstep/bench/step/trainer.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep::bench {

/// Makes the trainer of a variant. Collective.
using MakeTrainer =
    std::function<std::unique_ptr<StepTrainer>(const StepWork&, const StepVariant&, ProcessGroup)>;

/// Joins the group and times the variants in short rounds, alternating with their baselines; rank 0
/// prints the results and writes the files. Throws on any failure.
void bench_step_rank(const BenchStepSettings& settings, const MakeTrainer& make = make_trainer);

}  // namespace lockstep::bench
