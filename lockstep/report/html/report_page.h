// `lockstep report`: what some runs' folders and records hold, as one HTML file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

/// A page that needs no network and no other file. Of each folder of `lockstep train --out` it has
/// the configuration, learning curves, throughput, the phases of its steps, what limited it, a
/// traced step of all ranks with its critical path, who waited for whom, the loader's queue, and
/// its pictures. A record of `lockstep train --json` stands for a folder without a trace and
/// pictures. Several runs share their curves, and their speed by ranks stands against the
/// ideal, together with the rows of `lockstep bench table --json` files among `inputs`. Each figure
/// has its rows in a table and the command of its run. The page is well-formed XML, too. `command`
/// is what made it.
///
/// ConfigError without a run; DataError for a folder without a record (run.json), and for
/// files that are not what Lockstep writes.
std::string report_page(const std::vector<std::filesystem::path>& inputs,
                        const std::string& command);

}  // namespace lockstep::html
