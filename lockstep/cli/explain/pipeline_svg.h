// A pipeline's step as a picture.
#pragma once

#include <string>

#include <lockstep/cli/explain/pipeline_picture.h>

namespace lockstep {

/// An SVG that needs nothing else and reads on light and dark screens: for each chart a lane for
/// each worker with a box for each action, which is named when the mouse rests on it; beside the
/// lanes how long the worker waits and what it holds; below them the bubbles, and the table.
std::string pipeline_svg(const PipelinePicture& picture);

}  // namespace lockstep
