// A pipeline's step, drawn with letters.
#pragma once

#include <string>

#include <lockstep/cli/explain/pipeline_picture.h>

namespace lockstep {

/// For each chart a line of time for each worker, then what each worker holds and how long it
/// waits, the bubbles, and the table. Where all times are whole numbers a column of a line is 1,
/// and lines that are longer than `columns` go on below; else all of the step goes into `columns`.
std::string pipeline_text(const PipelinePicture& picture, int columns);

}  // namespace lockstep
