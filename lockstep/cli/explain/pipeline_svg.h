// A pipeline's step as a picture.
#pragma once

#include <string>

#include <lockstep/cli/explain/pipeline_picture.h>

namespace lockstep {

/// A self-contained SVG, legible on light and dark screens. Each chart has a lane for each worker
/// with a box for each action, whose name is shown on hover, and next to the lanes the worker's
/// waiting time and memory; below the lanes are the bubbles and the table.
std::string pipeline_svg(const PipelinePicture& picture);

}  // namespace lockstep
