// The table of the waits of each rank for each other one, with shaded cells.
#pragma once

#include <string>

#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

/// A figure: a row for each rank that waits, a column for each that it waits for. Of many ranks,
/// the pairs with the longest waits as a list. Empty for one rank.
std::string wait_matrix(const TracedRun& run, const Commands& commands);

}  // namespace lockstep::html
