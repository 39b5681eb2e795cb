// A pipeline's step as text.
#pragma once

#include <string>

#include <lockstep/cli/explain/pipeline_picture.h>

namespace lockstep::cli {

/// Returns, for each chart, a timeline for each worker, followed by each worker's memory and
/// waiting time, the bubbles, and the table. If all times are whole numbers, a column stands for 1
/// unit of time, and lines longer than `columns` are continued below; otherwise the whole step is
/// scaled to `columns`.
std::string pipeline_text(const PipelinePicture& picture, int columns);

}  // namespace lockstep::cli
