// `lockstep report`: the contents of runs' folders and records as one HTML file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

/// A self-contained page that needs no network and no other file. For each folder of `lockstep
/// train --out` it shows the configuration, learning curves, throughput, the phases of the steps,
/// what limited the run, a traced step of all ranks with its critical path, the waits between
/// ranks, the loader's queue, and the run's pictures. A record of `lockstep train --json` is
/// treated as a folder without a trace and pictures. Several runs share charts. Their speed by
/// number of ranks, together with that of the rows of `lockstep bench table --json` files among
/// `inputs`, is compared with the ideal. Each figure has a table of its data and the command of its
/// run. The page is well-formed XML. `command` is the command that makes the page.
///
/// Throws ConfigError if there is no run, and DataError for a folder without a record (run.json)
/// and for files that Lockstep did not write.
std::string report_page(const std::vector<std::filesystem::path>& inputs,
                        const std::string& command);

}  // namespace lockstep::html
