// A table of how long each rank waited for each other rank, with shaded cells.
#pragma once

#include <string>

#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

/// A figure with a row for each waiting rank and a column for each awaited rank. With many ranks,
/// it lists the pairs with the longest waits instead. Empty for one rank.
std::string wait_matrix(const TracedRun& run, const Commands& commands);

}  // namespace lockstep::html
