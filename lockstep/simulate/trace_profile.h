// Computes the profile of a step from the trace of a run.
#pragma once

#include <filesystem>

#include <lockstep/simulate/step_profile.h>

namespace lockstep::simulate {

/// The fewest steps that a trace must have, so that medians are meaningful.
inline constexpr int kFewestTracedSteps = 3;

/// Reads a trace: run.json and trace.json of a folder that `lockstep train --strategy ddp --trace
/// --out` wrote, or a file of `lockstep bench step --trace`. The latter does not state the batch
/// size or the strategy; ddp is assumed unless the file name begins with "zero1", as `bench step`
/// names its traces. Each time is the median over the steps, then the mean over the ranks. With
/// gradient accumulation, the last backward counts as backward; earlier ones count as forward,
/// without the waits for data between them.
///
/// If the ranks' own processors move the data, as over shared memory, the time of backward includes
/// that work; without_transfers() removes it.
///
/// Throws a DataError if a file is missing or was not written by Lockstep, if the run had no
/// reductions (one rank, or a strategy without buckets), if it used zero1 (its update is only one
/// rank's share and includes gathering the parameters), or if there are fewer than
/// kFewestTracedSteps steps.
StepProfile read_trace_profile(const std::filesystem::path& path);

/// Reads a trace as read_trace_profile() does, or a profile if `path` is a file that
/// read_step_profile() reads.
StepProfile find_step_profile(const std::filesystem::path& path);

}  // namespace lockstep::simulate
