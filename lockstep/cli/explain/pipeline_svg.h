// Draws a step of a pipeline.
#pragma once

#include <string>

#include <lockstep/cli/explain/pipeline_picture.h>

namespace lockstep::cli {

/// Returns a self-contained SVG, legible on light and dark backgrounds. Each chart has a lane for
/// each worker, with a box for each action, whose name is shown on hover. Each worker's waiting
/// time and memory are shown next to its lane; the bubbles and the table are below the charts.
std::string pipeline_svg(const PipelinePicture& picture);

}  // namespace lockstep::cli
