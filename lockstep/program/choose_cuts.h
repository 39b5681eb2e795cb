// Chooses where a graph is cut into stages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/graph_cuts.h>

namespace lockstep::program {

/// The bytes that each node adds: parameters at their first use, and its results.
std::vector<double> bytes_of_nodes(const ExportedGraph& program);

/// Chooses the first nodes of `stages` stages so that the most expensive one costs at most a tenth
/// more than it must, and as few bytes cross as possible. `costs` has one entry for each node.
/// Throws ConfigError, which begins with `owner`, if there are too few places for cuts.
std::vector<std::size_t> choose_cuts(const std::string& owner, const std::vector<Cut>& cuts,
                                     const std::vector<double>& costs, int stages);

}  // namespace lockstep::program
