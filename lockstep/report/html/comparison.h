// The report's sections about all runs together, with a curve or a column for each.
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
/// The speed of each run that completed an epoch.
std::vector<RankRate> rates_of(const Runs& runs);

// Each function returns the content of a section, empty if no run has anything to show.

/// State and final figures: cards for a single run, a table for several.
std::string overview(const Runs& runs);
/// The loss and the evaluations' metrics by epoch.
std::string learning(const Runs& runs);
/// Images per second, and the phases of a step in each epoch.
std::string speed(const Runs& runs);
/// Processors and GPUs in use, by epoch.
std::string utilisation(const Runs& runs);
/// Settings, setup and versions; those that differ between the runs come first.
std::string configuration(const Runs& runs);

}  // namespace lockstep::html
