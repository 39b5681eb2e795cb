// Checks the names in an exported program.
#pragma once

#include <string_view>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// Throws a CheckpointError that begins with `file` if a graph uses a value that it has not
/// defined before or defines one twice, if the signature describes other inputs than the graph, if
/// parameters, buffers or constants share a name or have none, if the name of a module has an empty
/// part, or if an output is written to something that is no input.
void check_references(const ExportedGraph& program, std::string_view file);

}  // namespace lockstep::program
