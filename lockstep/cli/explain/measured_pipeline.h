// Runs the table of a pipeline with stages that multiply matrices, or wait.
#pragma once

#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/cli/explain/pipeline_settings.h>

namespace lockstep {

/// Trains `toys` by `table` on the threads of this process and returns the step that took the
/// median time. Steps of empty stages, for ExecutorCost, alternate with them; the bytes of
/// activations come from a step of their own. Seeds LibTorch's generator.
PipelineMeasurement measure_pipeline(const pipeline::Table& table, const ToyStages& toys);

}  // namespace lockstep
