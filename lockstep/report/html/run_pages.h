// `lockstep report`: what some runs' folders hold, as one HTML file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

/// A page that needs no network and no other file: of each folder of `lockstep train --out` its
/// configuration, learning curves, throughput, the phases of its steps, a step of all ranks with the way
/// that decided how long it took, who waited for whom, what limited it, and its picture; with several
/// runs also what compares them. Each figure has its rows in a table below it and the command that
/// made the run. Charts are SVG, legible in light and dark. `command` is what made the page. DataError
/// for a folder without a record (run.json).
std::string page_of(const std::vector<std::filesystem::path>& folders, const std::string& command);

}  // namespace lockstep::html
