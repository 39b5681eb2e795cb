// The report's sections about a single run: its limits, a traced step, its pictures.
#pragma once

#include <string>

#include <lockstep/report/html/run_data.h>

namespace lockstep::html {

// Each function returns the content of a section, empty if the run has nothing to show.

/// What limited the run, the figures that show it, and what to try.
std::string limits_of(const RunData& run);
/// The last step of the trace on all ranks: its timeline, critical path, phases, and the waits
/// between ranks. Without a trace, instructions for recording one.
std::string traced_step_of(const RunData& run);
/// The loader's queue in the traced steps.
std::string queue_of(const RunData& run);
/// Contact sheets and reconstructions.
std::string pictures_of(const RunData& run);

}  // namespace lockstep::html
