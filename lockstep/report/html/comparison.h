// What the report shows of all its runs together: a curve or a column for each.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/run_data.h>
#include <lockstep/report/html/table_rows.h>

namespace lockstep::html {

using Runs = std::vector<RunData>;

/// The runs and the commands that made them.
Commands commands_of(const Runs& runs);
/// How fast each run with an epoch was.
std::vector<RankRate> rates_of(const Runs& runs);

// Each is the content of a section, empty where no run has anything to show.

/// State and final figures: cards for one run, a table for several.
std::string overview(const Runs& runs);
/// Loss and the metrics of the evaluations by epoch.
std::string learning(const Runs& runs);
/// Images per second, and the phases of a step in each epoch.
std::string speed(const Runs& runs);
/// Processors and GPUs in use, by epoch.
std::string utilisation(const Runs& runs);
/// Settings, setup and versions, those that differ between the runs first.
std::string configuration(const Runs& runs);

}  // namespace lockstep::html
