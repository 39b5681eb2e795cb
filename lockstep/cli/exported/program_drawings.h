// Draws an exported program.
#pragma once

#include <string>

#include <lockstep/cli/exported/program_picture.h>

namespace lockstep::cli {

/// Returns a self-contained SVG, legible on light and dark backgrounds: a column of boxes in the
/// order of the calls, with arrows between neighbours, and lines to other boxes on the right.
/// Details are shown on hover.
std::string program_svg(const ProgramPicture& picture);

/// Returns a table with a line for each box, below lines for the modules that contain it.
std::string program_text(const ProgramPicture& picture);

/// Returns a graph in the language of Graphviz, whose clusters are the stages.
std::string program_dot(const ProgramPicture& picture);

}  // namespace lockstep::cli
