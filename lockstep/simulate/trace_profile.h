// The profile of a step from the trace of a run.
#pragma once

#include <filesystem>

#include <lockstep/simulate/step_profile.h>

namespace lockstep {

/// At least this many steps must be in the trace, so that medians mean something.
inline constexpr int kFewestTracedSteps = 3;

/// Reads a trace: run.json and trace.json of a folder that `lockstep train --strategy ddp --trace
/// --out` has written, or a file of `lockstep bench step --trace`, which says nothing of the batch
/// and is taken for ddp's unless its name begins with "zero1", as `bench step` names it.
/// Each time is the median over the steps, then the mean over the ranks. Of accumulated batches the
/// last backward counts as such, the others as forward, without the waits for data between them.
///
/// Where the processors of the ranks themselves move the data, as over shared memory, backward
/// contains what that takes; it stays in it unless the caller takes it out (without_transfers()).
///
/// DataError where a file is missing or another program's, for a run without reductions (one rank,
/// or a strategy without buckets), for one of zero1, whose update is one rank's share and has the
/// gather of the parameters in it, and for fewer than kFewestTracedSteps steps.
StepProfile read_trace_profile(const std::filesystem::path& path);

/// Reads a trace as read_trace_profile() does, or a step's profile where `path` is a file of
/// read_step_profile().
StepProfile find_step_profile(const std::filesystem::path& path);

}  // namespace lockstep
