// What the report shows of one run: its limits, a traced step, its pictures.
#pragma once

#include <string>

#include <lockstep/report/html/run_data.h>

namespace lockstep::html {

// Each is the content of a section, empty where the run has nothing to show.

/// What limited the run, with the figures and what to try.
std::string limits_of(const RunData& run);
/// The last step of the trace on all ranks: its timeline, its critical path, its phases, and who
/// waits for whom. Without a trace, how to get one.
std::string traced_step_of(const RunData& run);
/// The loader's queue in the traced steps.
std::string queue_of(const RunData& run);
/// Contact sheets and reconstructions.
std::string pictures_of(const RunData& run);

}  // namespace lockstep::html
